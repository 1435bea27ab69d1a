"""A product of Triton has its operands in shared memory, by which a report knows of it."""

from tests.helpers.kernel_programs import needs_triton, run

PROGRAM = """
from profiling.analysis.verdict.gpu import OPERAND_BYTES
from tests.helpers.smallest_product import shared_bytes

for capability in (80, 90, 100):
    for warps in (1, 4):
        assert shared_bytes("fp16", 16, capability, warps) >= OPERAND_BYTES
assert shared_bytes("fp8e5", 32, 90, 4) >= OPERAND_BYTES
print("right")
"""


@needs_triton
def test_the_smallest_product_has_as_much_shared_memory_as_an_operand(tmp_path):
    run(PROGRAM, "cuda", TRITON_CACHE_DIR=str(tmp_path))
