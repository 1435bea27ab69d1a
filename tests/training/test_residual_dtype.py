"""residual_dtype=bfloat16: refused where matrix products have another dtype, else kept."""

import pytest
import torch

import sample
from cli.help import parse_keys
from configs.model import ModelConfig
from configs.sampling import SampleConfig
from training.disk.whole_checkpoint import load
from training.machine.device import check_residual

NARROW = {"dtype": "bfloat16", "residual_dtype": "bfloat16"}


@pytest.fixture
def trained(run):
    return run(**NARROW, max_iters=4, always_save_checkpoint=True)


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_it_needs_products_of_its_type(run, dtype):
    said = (
        "^residual_dtype=bfloat16: needs dtype=bfloat16, but this run has dtype=float32; use resid"
    )
    with pytest.raises(ValueError, match=said) as refusal:
        run(dtype=dtype, residual_dtype="bfloat16")
    assert "\n" not in str(refusal.value)


def test_float16_is_refused_and_the_default_goes_with_all():
    with pytest.raises(ValueError, match="this run has dtype=float16"):
        check_residual(ModelConfig(residual_dtype="bfloat16"), "float16")
    for dtype in ("float32", "bfloat16", "float16"):
        check_residual(ModelConfig(), dtype)


def test_it_rounds_and_learns_as_well(run, rows, tmp_path):
    losses = {}
    for name in ("float32", "bfloat16"):
        keys = NARROW | {"residual_dtype": name, "learning_rate": 1e-3, "max_iters": 30}
        found = rows(run(**keys, eval_interval=30, out_dir=str(tmp_path / name)))
        losses[name] = [found[i]["train/loss"] for i in range(30)]
    assert losses["float32"] != losses["bfloat16"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=2e-3)
    assert losses["bfloat16"][-1] < losses["bfloat16"][0] - 0.5


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["selective", "full"])
def test_recomputed_activations_change_nothing(run, rows, tmp_path, mode):
    losses = []
    for each in ("none", mode):
        out_dir = run(**NARROW, activation_checkpointing=each, out_dir=str(tmp_path / each))
        losses.append([rows(out_dir)[i]["train/loss"] for i in range(8)])
    assert losses[0] == losses[1]


def test_a_resume_keeps_it(run, trained):
    assert "residual_dtype: bfloat16" in (trained / "config.yaml").read_text()
    with pytest.raises(ValueError, match="^residual_dtype=float32: .* was trained with residual_"):
        run(dtype="bfloat16", init_from="resume", max_iters=6)
    run(**NARROW, init_from="resume", max_iters=6, always_save_checkpoint=True)
    whole = run(**NARROW, max_iters=6, always_save_checkpoint=True, out_dir=f"{trained}-whole")
    halves = load(trained / "ckpt.pt")
    assert halves.model_config.residual_dtype == "bfloat16"
    torch.testing.assert_close(halves.weights, load(whole / "ckpt.pt").weights, rtol=0, atol=0)
    run(dtype="bfloat16", init_from="resume", max_iters=8, exact_resume=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_text_is_sampled_in_any_type(trained, capsys, dtype):
    words = [f"out_dir={trained}", "max_new_tokens=5", "num_samples=1", f"dtype={dtype}"]
    sample.sample(parse_keys([*words, "device=cpu"], SampleConfig))
    assert sample.SEPARATOR in capsys.readouterr().out
