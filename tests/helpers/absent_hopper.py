"""Makes Triton compile for a Hopper GPU that is not there; to be imported before any kernel.

Tensors are on the CPU. A launch counts its arguments in `Driver.launches` and computes nothing, so
what is in the tensors is anything. TRITON_CACHE_DIR has to be a folder of the test's own.

The code has no barriers or fences: the two passes that insert them refuse no kernel, but take half
of the compiler's time. LLVM does not optimize and ptxas little, since this code never runs, and it
has no line numbers.
"""

import os

os.environ["PTXAS_OPTIONS"] = "--opt-level 1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import llvm, nvidia
from triton.runtime import driver


class Utils:
    def load_binary(self, *_):
        return 1, 1, 32, 0, 1024

    def unload_module(self, *_):
        pass

    def get_device_properties(self, _):
        return {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32}


class Driver:
    utils = Utils()
    launches: list[tuple] = []

    def launcher_cls(self, *_):
        return lambda *arguments, **_: self.launches.append(arguments)

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")


class Properties:
    multi_processor_count, major = 132, 9


driver.set_active(Driver())
llvm.OPTIMIZE_O3 = llvm.OPTIMIZE_O0
nvidia.passes.ttgpuir.add_membar = lambda *_: None
nvidia.passes.ttnvgpuir.add_proxy_fence_insertion = lambda *_: None
torch.cuda.get_device_properties = lambda _: Properties
torch.cuda.get_device_capability = lambda _=None: (9, 0)
