"""The smallest product that Triton multiplies, compiled for a GPU that need not be here."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def multiply(a, b, out, ROWS: tl.constexpr, DEPTH: tl.constexpr):
    rows, depth = tl.arange(0, ROWS), tl.arange(0, DEPTH)
    left = tl.load(a + rows[:, None] * DEPTH + depth[None, :])
    right = tl.load(b + depth[:, None] * ROWS + rows[None, :])
    tl.store(out + rows[:, None] * ROWS + rows[None, :], tl.dot(left, right))


def shared_bytes(dtype: str, depth: int, capability: int, warps: int) -> int:
    """Shared memory of a block that multiplies 16 rows and 16 columns of `depth` elements."""
    signature = {"a": f"*{dtype}", "b": f"*{dtype}", "out": "*fp32"}
    sizes = {"ROWS": 16, "DEPTH": depth}
    source = ASTSource(multiply, signature | dict.fromkeys(sizes, "constexpr"), sizes)
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": warps}).metadata.shared
