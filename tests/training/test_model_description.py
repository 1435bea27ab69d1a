"""The description of a model: what the trainer writes of it, and what is read without it."""

import json
from dataclasses import asdict, replace

import pytest

import model
from configs.model import ModelConfig
from model import GPT
from profiling.shared.json_records import read_json, to_json
from profiling.shared.manifest import CapturedWindow, Manifest
from profiling.shared.model_description import ModelDescription, TokenWork, matrices_of
from tests.helpers.mlps import SwiGLU
from training.machine.model_description import describe

TINY = ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=16, dropout=0.1)


def manifest(config: ModelConfig, described: ModelDescription | None) -> Manifest:
    keys = asdict(config)
    return Manifest(1, "torch", CapturedWindow(), vocab_size=65, config=keys, model=described)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"bias": True},
        {"positions": "rotary"},
        {"activation": "gelu_tanh"},
        {"n_layer": 5, "n_embd": 48, "attention": "slow", "kernels": "fused"},
    ],
    ids=str,
)
def test_a_run_describes_what_its_keys_define(keys, tmp_path):
    """A manifest without a description, of an older run, is read as if it had one."""
    config = replace(TINY, **keys)
    described = describe(config, 65)
    assert manifest(config, None).described_model() == described
    assert list(described.parameters) == [name for name, _ in GPT(config, 65).named_parameters()]
    path = tmp_path / "window-1.json"
    path.write_text(to_json(manifest(config, described)))
    assert read_json(path, Manifest).model == described


def test_the_description_counts_as_the_model_does():
    described, made = describe(TINY, 65), GPT(TINY, 65)
    assert described.flops_per_token == made.flops_per_token()
    assert described.parameter_count == sum(each.numel() for each in made.parameters())
    assert described.vocab_size == 65 and described.width == 32 and len(described.blocks) == 2


def test_another_mlp_describes_itself(monkeypatch):
    """Weights, products, and what it computes between them: 8 values of 3 C a block."""
    monkeypatch.setattr(model, "MLP", SwiGLU)
    described, made = describe(TINY, 65), GPT(TINY, 65)
    assert described.parameters["transformer.h.1.mlp.w2.weight"] == (96, 32)
    assert described.flops_per_token == made.flops_per_token()
    products = 2 * (4 * 32 * 32 + 3 * 96 * 32) + 65 * 32
    assert described.work.gemm.flops == 6 * products
    assert len(matrices_of(described.parameters)) == 2 * 5 + 1
    assert described.work.elementwise == TokenWork(2 * 96 * (20 + 3), 8 * 2 * 96)
    assert manifest(TINY, described).described_model() == described


def test_what_is_not_known_of_an_mlp_is_said(monkeypatch):
    class Odd(SwiGLU):
        def forward(self, x):
            return self.c_proj(self.w1(x).erfinv() * self.w2(x))

    class WithoutMeta(SwiGLU):
        def forward(self, x):
            return self.c_proj(self.w1(x) * self.w2(x).mean().item())

    for made, why in ((Odd, "erfinv"), (WithoutMeta, "RuntimeError: .*meta")):
        monkeypatch.setattr(model, "MLP", made)
        described = describe(TINY, 65)
        with pytest.raises(ValueError, match=f"^the work of the model's MLP is not known: .*{why}"):
            manifest(TINY, described).described_model()


def test_keys_that_define_no_gpt2_are_no_description():
    with pytest.raises(ValueError, match=r"the manifest's config: .*relu.* - at `\$.activation`"):
        Manifest(
            1,
            "torch",
            CapturedWindow(),
            vocab_size=65,
            config=asdict(TINY) | {"activation": "relu"},
        ).described_model()


@pytest.mark.parametrize(
    ("entry", "value"),
    [("parameters", {}), ("parameters", {"transformer.wte.weight": [65, 32]}), ("work", {})],
)
def test_a_damaged_description_is_refused_in_a_line(entry, value, tmp_path):
    path = tmp_path / "window-1.json"
    record = json.loads(to_json(manifest(TINY, describe(TINY, 65))))
    record["model"][entry] = value
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"window-1.json: is damaged: .* at `\$.model"):
        read_json(path, Manifest)


@pytest.mark.slow
def test_a_description_allocates_and_compiles_nothing(start):
    """A process of its own describes it: here another test may have imported Dynamo."""
    lines = (
        "import sys, train",
        "from configs.schema import Config",
        "from training.machine.model_description import describe",
        "config = Config(n_embd=2**14, n_head=1, n_layer=1, block_size=2**30)",
        "assert describe(config, 2**20).width == 2**14",
        "print({'torch._dynamo', 'sympy'} & {*sys.modules})",
    )
    process = start(["-c", "; ".join(lines)], anew=True)
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 0 and output == "set()\n", output
