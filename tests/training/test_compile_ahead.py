"""Kernels of a step are compiled in parallel before the first is launched."""

import pytest
import torch

from tests.helpers.kernel_programs import needs_gpu, needs_triton, run

pytestmark = needs_triton

ON_A_CPU = r"""
from tests.helpers.absent_hopper import Driver
import torch
import kernels.gelu.in_triton as gelu
from kernels.compilations_triton import collect_compilations

def work():
    u = torch.ones(4096)
    gelu.launch_backward(u, gelu.launch_forward(u))
    gelu.launch_forward(u)

with collect_compilations() as noted:
    work()
assert sorted(name for name, _ in noted) == ["backward_gelu_triton", "forward_gelu_triton"]
assert not Driver.launches
kernels = [compilation() for compilation in noted.values()]
assert all(kernel.asm["ptx"] for kernel in kernels)
with collect_compilations() as again:
    work()
assert not again and len(Driver.launches) == 3
print("right")
"""

ON_A_GPU = r"""
import sys
import torch
from kernels.compilations_triton import collect_compilations
from training.step.compile_ahead import compile_ahead, rehearse
from training.machine.device import resolve
from training.ranks.distributed import Ranks
from training.optimizers.kinds import make_optimizer
from training.step.step import Step
from configs.schema import Config
from kernels.fused_model import make_model

device = torch.device("cuda", 0)
config = resolve(Config(attention="triton", n_layer=2, batch_size=4), device)
assert (config.kernels, config.compile) == ("fused", False)
model = make_model(config, 65).to(device)
ranks = Ranks(0, 1, device)
step = Step(model, make_optimizer(model, config, device), config, ranks)
before = [p.clone() for p in model.parameters()]
x = torch.randint(0, 65, (4, config.block_size), device=device)
compile_ahead(step, x, x, config, ranks)
assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
assert all(p.grad is None for p in model.parameters()) and step.micro_step == 0
assert step.optimizer.skipped.item() == 0 and model.training
with collect_compilations() as left:
    rehearse(step, x, x, config)
assert not left, list(left)
print("right")
"""


@pytest.mark.slow
def test_what_is_rehearsed_is_not_launched_and_then_needs_no_compiler(tmp_path):
    # by Triton's compiler, not its interpreter
    run(ON_A_CPU, "cuda", TRITON_CACHE_DIR=str(tmp_path))
    assert any(tmp_path.iterdir()), "Triton's cache lies elsewhere"


@pytest.mark.gpu
@needs_gpu
def test_a_step_on_a_gpu_has_all_its_kernels():
    run(ON_A_GPU, "cuda")


def test_a_cpu_does_without():
    from training.step.compile_ahead import compile_ahead

    x = torch.zeros(1, 1, dtype=torch.int64)
    compile_ahead(None, x, x, None, None)
