"""Triton's compiler takes every kernel of a step for a Hopper GPU, on a machine that has none."""

import pytest

from tests.helpers.kernel_programs import needs_triton, run

pytestmark = [needs_triton, pytest.mark.slow]

PROGRAM = r"""
import tests.helpers.absent_hopper
import torch
from kernels import linear
from kernels.attention import in_triton as attention
from kernels.compilations_triton import collect_compilations
from kernels.cross_entropy import in_triton as cross_entropy

for module in (linear, attention, cross_entropy):
    module.has_gluon = lambda _: True  # what is on the CPU counts as on that GPU

from configs.schema import Config
from kernels.fused_model import make_model
from training.optimizers.kinds import make_optimizer
from training.ranks.distributed import Ranks
from training.step.compile_ahead import rehearse
from training.step.step import Step

CPU = torch.device("cpu")
WIDE = dict(n_head=12, n_embd=768, block_size=1024, dropout=0.0)
names = set()
for vocab_size, keys in (
    (65, {}), (65, dict(optimizer="muon", positions="rotary")), (50_257, WIDE)
):
    config = Config(
        attention="triton", kernels="fused", compile=False, dtype="bfloat16", device="cuda",
        n_layer=1, batch_size=1, cuda_graphs="false", **keys,
    )
    model = make_model(config, vocab_size)
    step = Step(model, make_optimizer(model, config, CPU), config, Ranks(0, 1, CPU))
    ids = torch.zeros(1, config.block_size, dtype=torch.int64)
    with collect_compilations() as compilations:
        rehearse(step, ids, ids, config)
    names |= {name for name, _ in compilations}
    for compilation in compilations.values():
        assert compilation().asm["cubin"]
for part in (
    "embedding", "layer_norm_of_sum", "linear_forward_gelu", "linear_streamed", "adamw", "rotary",
    "muon_momentum", "cross_entropy_triton_gluon", "causal_attention_triton_gluon",
    "causal_attention_triton_keys",
):
    assert any(part in name for name in names), (part, names)
print("right")
"""


def test_all_kernels_of_a_step(tmp_path):
    # by Triton's compiler, not its interpreter
    run(PROGRAM, "cuda", TRITON_CACHE_DIR=str(tmp_path))
    assert any(tmp_path.iterdir()), "Triton's cache lies elsewhere"
