"""A run with this project's kernels and without compilation imports no compiler but Triton."""

import pytest

from tests.helpers.kernel_programs import DEVICES, needs_triton, run_anew

pytestmark = [needs_triton, pytest.mark.slow]

PROGRAM = r"""
import runpy
import sys
from tempfile import TemporaryDirectory
import training.checks
import training.step.warm_up
from profiling.shared.manifest import AttentionFacts

SLOW = {"torch._dynamo", "torch._inductor", "sympy", "networkx"}
device = sys.argv[1]
keys = f"device={device} kernels=fused attention=triton compile=false dtype=bfloat16"
keys += " n_layer=1 n_head=2 n_embd=32 block_size=8 batch_size=1 max_iters=1 eval_iters=1"
keys += " eval_batch_size=1 always_save_checkpoint=true wandb.mode=disabled"
keys += " cuda_graphs=true" if device == "cuda" else " cuda_graphs=auto"

if device == "cpu":  # which a user is refused, for there they are interpreted
    training.checks.check_attention = lambda *_: None
    training.checks.check_kernels = lambda *_: None
    training.step.warm_up.seen_kernels = lambda *_: None
    training.step.warm_up.facts_on_cpu = lambda config, _: AttentionFacts("triton", "triton", "")

with TemporaryDirectory() as folder:
    with open(f"{folder}/text.txt", "w") as file:
        file.write("First Citizen: speak, speak. " * 25)
    keys += f" data_source={folder}/text.txt out_dir={folder}/out"
    runs = [keys + more for more in ("", " init_from=resume max_iters=2", " recipe=fast")]
    if device == "cuda":  # where both keys come to the same if nobody types them
        runs.append(keys.replace(" kernels=fused", "").replace(" compile=false", ""))
    for words in runs:
        sys.argv = ["train.py", *words.split()]
        runpy.run_path("train.py", run_name="__main__")
        found = SLOW & set(sys.modules)
        assert not found and "kernels.norm.in_triton" in sys.modules, (words, found)
print("right")
"""


@pytest.mark.parametrize("device", DEVICES)
def test_it_imports_no_dynamo(device):
    run_anew(PROGRAM, device)
