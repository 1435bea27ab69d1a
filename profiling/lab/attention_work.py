"""What causal attention needs at least, and what it should give. Called by profiling.lab.attention.

Counted is the function, not an implementation: every backend has the same arithmetic and the same
traffic to its name, so shares of the peaks compare. A backend that also computes what the mask
throws away (slow, math) does about twice the arithmetic in vain.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

QUERIES = 1024  # of a block of the reference: its float64 scores are QUERIES x seq for each head

NO_NORM = 1e-30


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    seq: int
    head_dim: int


def flops(shape: Shape, direction: str) -> int:
    """Two matrix products of the lower triangle; backward five: it computes the scores again."""
    pairs = shape.seq * (shape.seq + 1) // 2
    product = 2 * shape.batch * shape.heads * pairs * shape.head_dim
    return product * (2 if direction == "forward" else 5)


def minimal_bytes(shape: Shape, direction: str, element_bytes: int) -> int:
    """q, k, v read, the output written; backward reads these and its gradient, writes three."""
    tensor = shape.batch * shape.heads * shape.seq * shape.head_dim * element_bytes
    return tensor * (4 if direction == "forward" else 8)


def reference(q: Tensor, k: Tensor, v: Tensor, out_grad: Tensor | None) -> list[Tensor]:
    """The output in float64 and, with `out_grad`, the gradients of q, k, v; all (B, H, T, D).

    In blocks of queries, so that long sequences fit; written out, with no autograd and nothing of
    the code that is measured.
    """
    q, k, v = q.double(), k.double(), v.double()
    scale = q.size(-1) ** -0.5
    out, q_grad, k_grad, v_grad = (torch.zeros_like(q) for _ in range(4))
    for start in range(0, q.size(-2), QUERIES):
        rows = slice(start, min(start + QUERIES, q.size(-2)))
        seen = slice(0, rows.stop)
        queries, keys, values = q[:, :, rows], k[:, :, seen], v[:, :, seen]
        scores = queries @ keys.mT * scale
        scores += torch.full_like(scores, float("-inf")).triu(rows.start + 1)
        weights = scores.softmax(-1)
        out[:, :, rows] = weights @ values
        if out_grad is None:
            continue
        grad = out_grad[:, :, rows].double()
        weights_grad = grad @ values.mT
        mean = (weights_grad * weights).sum(-1, keepdim=True)
        scores_grad = weights * (weights_grad - mean) * scale
        v_grad[:, :, seen] += weights.mT @ grad
        q_grad[:, :, rows] = scores_grad @ keys
        k_grad[:, :, seen] += scores_grad.mT @ queries
    return [out] if out_grad is None else [out, q_grad, k_grad, v_grad]


def errors(found: list[Tensor], exact: list[Tensor]) -> tuple[float | None, float | None]:
    """(largest absolute difference, largest ratio of the norms of difference and value).

    None where the result is not finite.
    """
    if not all(tensor.isfinite().all() for tensor in found):
        return None, None
    differences = [f.double() - e for f, e in zip(found, exact, strict=True)]
    absolute = max(d.abs().max().item() for d in differences)
    norms = [e.norm().clamp_min(NO_NORM) for e in exact]  # of one token q and k have no gradient
    relative = max((d.norm() / n).item() for d, n in zip(differences, norms, strict=True))
    return absolute, relative
