"""A call of causal attention, set up as in the model; its minimal work; its exact result.

`model.attend` itself is timed. The work is counted for the function, not for an implementation:
every backend is credited with the same arithmetic and the same traffic, so shares of the peaks can
be compared. A backend that also computes what the mask throws away (slow, math) does about twice
the arithmetic, in vain. Called by profiling.lab.attention_timing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from model import attend
from profiling.shared.measurements import COMPILE

QUERIES = 1024  # in a block of the reference: its float64 scores are QUERIES x seq for each head
NO_NORM = 1e-30


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    seq: int
    head_dim: int


@dataclass(frozen=True)
class Case:
    backend: str  # of profiling.shared.measurements.BACKENDS
    shape: Shape
    dtype: str
    dropout: float
    backward: bool  # measure backward too; forward then saves what backward needs
    device: torch.device

    @property
    def directions(self) -> list[str]:
        return ["forward", "backward"] if self.backward else ["forward"]


class Call:
    """A case that is set up to run: `forward` and `backward` are timed."""

    def __init__(self, case: Case):
        shape = case.shape
        sizes = (shape.batch, shape.seq, shape.heads, shape.head_dim)
        width = shape.heads * shape.head_dim
        randn = partial(torch.randn, device=case.device, dtype=getattr(torch, case.dtype))
        torch.manual_seed(0)
        projected = randn(shape.batch, shape.seq, 3 * width)  # c_attn's output
        self.inputs = [
            part.view(sizes).transpose(1, 2).requires_grad_(case.backward)  # (B, H, T, D)
            for part in projected.split(width, dim=2)
        ]
        self.out_grad = randn(sizes).transpose(1, 2) if case.backward else None
        compiled = case.backend == COMPILE.name
        self.attention = "slow" if compiled else case.backend
        self.function: Callable[..., Tensor] = attend
        if compiled:
            self.function = torch.compile(attend, dynamic=False)
        self.mask: Tensor | None = None
        if self.attention == "slow":
            ones = torch.ones(shape.seq, shape.seq, dtype=torch.bool, device=case.device)
            self.mask = ones.tril_()
        self.case = case
        self.out: Tensor | None = None

    @property
    def passes(self) -> dict[str, Callable[[], object]]:
        """Direction -> method, to be run in this order: backward uses what forward saved."""
        return {name: getattr(self, name) for name in self.case.directions}

    def forward(self) -> Tensor:
        self.out = None  # frees what the last forward saved
        with torch.set_grad_enabled(self.case.backward):
            self.out = self.function(*self.inputs, self.attention, self.case.dropout, self.mask)
        return self.out

    def backward(self) -> tuple[Tensor, ...]:
        out, self.out = self.out, None
        assert out is not None, "forward comes first"
        return torch.autograd.grad(out, self.inputs, self.out_grad)


def flops(shape: Shape, direction: str) -> int:
    """FLOPs of a direction: two matrix products of the lower triangle in forward, five in backward,
    which recomputes the scores."""
    pairs = shape.seq * (shape.seq + 1) // 2
    product = 2 * shape.batch * shape.heads * pairs * shape.head_dim
    return product * (2 if direction == "forward" else 5)


def minimal_bytes(shape: Shape, direction: str, element_bytes: int) -> int:
    """Least traffic of a direction, in bytes.

    Forward reads q, k, v and writes the output; backward reads these four and the output's
    gradient, and writes three gradients.
    """
    tensor = shape.batch * shape.heads * shape.seq * shape.head_dim * element_bytes
    return tensor * (4 if direction == "forward" else 8)


def reference(q: Tensor, k: Tensor, v: Tensor, out_grad: Tensor | None) -> list[Tensor]:
    """The output in float64 and, with `out_grad`, the gradients of q, k, v; all (B, H, T, D).

    It is computed in blocks of queries, so that long sequences fit, and written out: without
    autograd and without any of the measured code.
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


def errors(results: list[Tensor], exact: list[Tensor]) -> tuple[float | None, float | None]:
    """(largest absolute difference, largest ratio of the norms of difference and exact value).

    Both are None if a result is not finite.
    """
    if not all(tensor.isfinite().all() for tensor in results):
        return None, None
    differences = [r.double() - e for r, e in zip(results, exact, strict=True)]
    absolute = max(d.abs().max().item() for d in differences)
    norms = [
        e.norm().clamp_min(NO_NORM) for e in exact
    ]  # with one token q's and k's gradients are 0
    relative = max((d.norm() / n).item() for d, n in zip(differences, norms, strict=True))
    return absolute, relative
