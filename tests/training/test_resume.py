"""init_from=resume: its folder, messages and refusals, and how a checkpoint is read."""

import copy
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import sample
import train
from cli.help import parse_keys
from configs.compose import compose_jobs
from configs.sampling import SampleConfig
from training.disk.whole_checkpoint import load


@pytest.fixture
def trained(run, tmp_path) -> Path:
    """A run of four iterations in tmp_path/out, saved at its end."""
    return run(max_iters=4, always_save_checkpoint=True)


def resumed(file: Path, *words: str) -> Path:
    """train.py FILE init_from=resume WORDS; returns where it wrote."""
    (config,) = compose_jobs(file, ["init_from=resume", *words], multirun=False)
    train.train(config)
    return Path(config.out_dir)


def iteration(out_dir: Path) -> int:
    return load(out_dir / "ckpt.pt").iteration


@pytest.mark.parametrize("how", ["copied", "moved", "previous"])
def test_a_config_beside_its_checkpoint_resumes_that_folder(trained, tmp_path, how):
    place = {"previous": trained / "previous-1"}.get(how, tmp_path / "elsewhere")
    shutil.copytree(trained, tmp_path / "aside")
    if how == "moved":
        shutil.rmtree(trained)
    (tmp_path / "aside").rename(place)
    before = (trained / "ckpt.pt").read_bytes() if how != "moved" else b""
    assert resumed(place / "config.yaml", "max_iters=6") == place
    assert iteration(place) == 6
    if how == "moved":
        assert not trained.exists()
    else:
        assert (trained / "ckpt.pt").read_bytes() == before


def test_out_dir_on_the_command_line_wins(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "copy")
    words = ["max_iters=6", f"out_dir={tmp_path}/copy"]
    assert resumed(trained / "config.yaml", *words) == tmp_path / "copy"
    assert (iteration(trained), iteration(tmp_path / "copy")) == (4, 6)


def test_a_file_without_a_checkpoint_beside_it_says_its_own_folder(trained, tmp_path):
    shutil.copy(trained / "config.yaml", tmp_path / "mine.yaml")
    assert resumed(tmp_path / "mine.yaml", "max_iters=5") == trained
    (config,) = compose_jobs(trained / "config.yaml", ["init_from=scratch"], multirun=False)
    assert config.out_dir == str(trained)


def test_what_was_resumed_and_what_changed_is_said(run, trained, capsys):
    best = load(trained / "ckpt.pt").best_val_loss
    capsys.readouterr()
    run(init_from="resume", max_iters=6, learning_rate=2e-3)
    said = capsys.readouterr().out.splitlines()
    at = f"iteration 4 (best validation loss {best:.4f} at iteration 4)"
    changed = ["max_iters 4 -> 6", "always_save_checkpoint true -> false"]
    changed = ", ".join([*changed, "learning_rate 0.01 -> 0.002"])
    assert said[0] == f"resumed {trained}/ckpt.pt at {at}; changed: {changed}"
    (took,) = [line for line in said if line.startswith("6 iterations in ")]
    assert re.search(r" s, [\d.]+ s of it since the resume, ", took)  # not that of all starts alone
    assert said[1].startswith("the remaining 2 iterations take about")


@pytest.mark.parametrize(
    "keys, asked",
    [
        (dict(batch_size=2), "batch_size=2"),
        (dict(seed=7), "seed=7"),
        (dict(dropout=0.1), "dropout=0.1"),
        (dict(dtype="bfloat16"), "dtype=bfloat16"),
        (dict(gradient_accumulation_steps=2), "gradient_accumulation_steps=2"),
        (dict(batch_size=2, seed=7), "batch_size=2, seed=7"),
    ],
)
def test_what_breaks_exactness_has_to_be_asked_for(run, trained, keys, asked):
    with pytest.raises(ValueError, match=rf"^{asked}: .* add exact_resume=false") as refusal:
        run(init_from="resume", max_iters=6, **keys)
    assert "\n" not in str(refusal.value) and iteration(trained) == 4
    run(init_from="resume", max_iters=6, exact_resume=False, always_save_checkpoint=True, **keys)
    assert iteration(trained) == 6
    assert "exact_resume: true" in (trained / "config.yaml").read_text()  # asked for this once


def test_a_batch_may_be_split_in_another_way(run, trained):
    """The sequences of an iteration are the same ones."""
    run(init_from="resume", max_iters=6, batch_size=2, gradient_accumulation_steps=2)


def test_fewer_iterations_than_it_has_are_one_line(run, trained):
    with pytest.raises(
        ValueError, match=r"^max_iters=3: .* already at iteration 4; raise max_iters"
    ):
        run(init_from="resume", max_iters=3)
    run(init_from="resume", max_iters=3, eval_only=True)


def test_a_run_with_other_keys_is_refused_before_a_text_is_made_for_it(run, trained, monkeypatch):
    monkeypatch.setattr(train, "prepare", lambda config: pytest.fail("made a text"))
    said = r"^n_layer=1: the checkpoint has 2, .* python train.py .*config.yaml init_from=resume$"
    with pytest.raises(ValueError, match=said):
        run(init_from="resume", n_layer=1, data_source=None)


def without(*names: str) -> Callable[[dict], None]:
    """Takes an entry out of a state: of a dictionary in a dictionary."""

    def take(state: dict) -> None:
        for name in names[:-1]:
            state = state[name]
        del state[names[-1]]

    return take


def entry(value: object, *names: str) -> Callable[[dict], None]:
    def put(state: dict) -> None:
        for name in names[:-1]:
            state = state[name]
        state[names[-1]] = value

    return put


def half_an_optimizer(state: dict) -> None:
    for number in list(state["optimizer"])[::2]:
        del state["optimizer"][number]


def spoilt(state: dict) -> None:
    state["model"]["transformer.ln_f.weight"][3] = math.nan


# what is done to the state, what is said of it, whether sample.py can use it
WRONG = {
    "no optimizer": (without("optimizer"), "the optimizer state of only 0 of", True),
    "half an optimizer": (half_an_optimizer, "the optimizer state of", True),
    "moments of another shape": (
        entry(torch.zeros(3), "optimizer", 0, "exp_avg"),
        "the optimizer's exp_avg of parameter 0",
        True,
    ),
    "no random states": (without("random_states"), "has no random_states", True),
    "a random state of another size": (
        entry([torch.zeros(7, dtype=torch.uint8)], "random_states", "cpu"),
        "its random state of cpu does not fit",
        True,
    ),
    "a random state that is none": (entry([5], "random_states", "cpu"), "random state", True),
    "no text": (without("text"), "does not contain the text", True),
    "no seed": (without("config", "seed"), "its configuration has no seed", True),
    "no width": (without("config", "n_embd"), "lacks 'n_embd'", False),
    "width is a word": (entry("wide", "config", "n_embd"), "n_embd=wide is not of type int", False),
    "a config of text": (entry("n_layer: 2", "config"), "its config is a str", False),
    "a tensor in the configuration": (
        entry(torch.zeros(3), "config", "seed"),
        "its config has seed, which is not a plain value",
        False,
    ),
    "a tensor in a section": (
        entry(torch.zeros(3), "config", "profile", "steps"),
        "its config has profile, which is not a plain value",
        False,
    ),
    "no tokenizer": (without("tokenizer"), "lacks 'tokenizer'", False),
    "iter_num is a word": (entry("abc", "iter_num"), "iter_num is 'abc'", False),
    "iter_num below 0": (entry(-5, "iter_num"), "iter_num is -5", False),
    "no best loss": (entry(None, "best_val_loss"), "best_val_loss is None", False),
    "no weights": (entry({}, "model"), "the file has weights of 0 blocks", False),
    "a weight is missing": (without("model", "lm_head.weight"), "has no lm_head.weight", False),
    "a weight of another shape": (
        entry(torch.zeros(3, 3), "model", "transformer.wpe.weight"),
        "transformer.wpe.weight is (3, 3), not (32, 32)",
        False,
    ),
    "a weight is text": (
        entry("x", "model", "lm_head.weight"),
        "not a dictionary of tensors",
        False,
    ),
    "nan": (spoilt, "its weights are invalid: transformer.ln_f.weight", False),
    "absurdly deep": (entry(10**8, "config", "n_layer"), "n_layer=100000000, but", False),
    "absurdly wide": (entry(10**8, "config", "n_embd"), "not (", False),
}


@pytest.fixture
def older(trained) -> Path:
    """Turns the run's checkpoint into one that is older than these keys."""
    path = trained / "ckpt.pt"
    state = torch.load(path, weights_only=True)
    for key in (
        "positions",
        "activation",
        "kernels",
        "optimizer",
        "lr_decay",
        "residual_dtype",
        "speed",
    ):
        del state["config"][key]
    torch.save(state, path)
    return path


def test_a_checkpoint_older_than_a_key_has_its_default(run, older):
    found = load(older).model_config
    assert (found.positions, found.activation, found.kernels) == ("learned", "gelu", "compiled")
    assert found.residual_dtype == "float32"
    with pytest.raises(ValueError, match="^residual_dtype=bfloat16, dtype=bfloat16: .*=float32, d"):
        run(init_from="resume", max_iters=6, dtype="bfloat16", residual_dtype="bfloat16")
    assert iteration(run(init_from="resume", max_iters=6)) == 6


OTHER_MODELS = [("positions", "rotary", "learned"), ("activation", "gelu_tanh", "gelu")]
OTHER_MODELS += [("optimizer", "muon", "adamw")]


@pytest.mark.parametrize("key, now, was", OTHER_MODELS)
@pytest.mark.parametrize("age", ["trained", "older"])
def test_another_model_is_not_resumed(run, request, age, key, now, was):
    request.getfixturevalue(age)
    with pytest.raises(ValueError, match=f"^{key}={now}: the checkpoint has {was}"):
        run(init_from="resume", max_iters=6, **{key: now})


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_checkpoint_is_one_line_for_resume_and_for_sample(run, trained, tmp_path, case):
    spoil, said, samples = WRONG[case]
    path = trained / "ckpt.pt"
    state = copy.deepcopy(torch.load(path, weights_only=True))
    spoil(state)
    torch.save(state, path)
    damaged = path.read_bytes()
    with pytest.raises(ValueError) as refusal:
        run(init_from="resume", max_iters=6)
    message = str(refusal.value)
    assert message.startswith(f"{path}: ") and said in message and "\n" not in message
    assert "good" not in message and "init_from=scratch" in message
    assert path.read_bytes() == damaged
    asked = parse_keys([f"out_dir={trained}", "max_new_tokens=2", "num_samples=1"], SampleConfig)
    if samples:
        sample.sample(asked)
    else:
        with pytest.raises(ValueError) as refusal:
            sample.sample(asked)
        assert str(refusal.value) == message
