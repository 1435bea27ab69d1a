"""Kernels of a step are compiled in parallel before the first is launched."""

import pytest
import torch

from tests.helpers.kernel_programs import needs_gpu, needs_triton, run

pytestmark = needs_triton

# Triton compiles for a Hopper GPU that is not there; a launch of what it made is counted
ON_A_CPU = r"""
import os, tempfile
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class Utils:
    def load_binary(self, *_): return 1, 1, 32, 0, 1024
    def unload_module(self, *_): pass
    def get_device_properties(self, _): return {"max_shared_mem": 232448, "warpSize": 32}

class Driver:
    utils, launches = Utils(), []
    def launcher_cls(self, *_): return lambda *arguments, **_: self.launches.append(arguments)
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, _): return 0
    def get_active_torch_device(self): return torch.device("cpu")

driver.set_active(Driver())
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
from model import GPT

device = torch.device("cuda", 0)
config = resolve(Config(attention="triton", n_layer=2, batch_size=4), device)
assert (config.kernels, config.compile) == ("fused", False)
model = GPT(config, 65).to(device)
ranks = Ranks(0, 1, device)
step = Step(model, make_optimizer(model, config, device), config, ranks)
before = [p.clone() for p in model.parameters()]
x = torch.randint(0, 65, (4, config.block_size), device=device)
compile_ahead(step, x, x, config, ranks)
assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
assert all(p.grad is None for p in model.parameters()) and step.micro_step == 0
assert step.skipped.item() == 0 and model.training
with collect_compilations() as left:
    rehearse(step, x, x)
assert not left, list(left)
print("right")
"""


def test_what_is_rehearsed_is_not_launched_and_then_needs_no_compiler():
    run(ON_A_CPU, "cuda")  # by Triton's compiler, not its interpreter


@pytest.mark.gpu
@needs_gpu
def test_a_step_on_a_gpu_has_all_its_kernels():
    run(ON_A_GPU, "cuda")


def test_a_cpu_does_without():
    from training.step.compile_ahead import compile_ahead

    x = torch.zeros(1, 1, dtype=torch.int64)
    compile_ahead(None, x, x, None, None)
