"""Muon: makes each update of a matrix orthogonal, so that all its directions are learnt as fast.

Keller Jordan, kellerjordan.github.io/posts/muon; scaled as in arxiv.org/abs/2502.16982, so that
one learning rate suits it and AdamW. torch.optim.Muon cannot be used here: it reads its learning
rate on the host, which no CUDA graph can, launches kernels for each matrix by itself, and updates
weights with gradients that are not finite.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from training.optimizers.optimizer import AdamW, ClippedAdamW, address

MOMENTUM = 0.95
STEPS = 5  # of Newton and Schulz: singular values end between 0.7 and 1.2
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the polynomial; they make it steepest at zero
RMS = 0.2  # of an update, in units of the learning rate; AdamW's is about that


class Muon(AdamW):
    """Muon for the first parameter group, which holds matrices; AdamW for the other groups.

    Matrices of one shape are multiplied as one batch, whose momentum is the state of the first.
    """

    __setstate__ = Optimizer.__setstate__  # Adam's expects its own state for every parameter

    @staticmethod
    def groups(model: nn.Module) -> tuple[list[Parameter], ...]:
        """The blocks' matrices, the other parameters that decay, and those that do not.

        Embeddings and head are no matrices for Muon: they are looked up by rows.
        """
        decaying, others = AdamW.groups(model)
        blocks = {id(p) for name, p in model.named_parameters() if ".h." in name}
        inside = [p for p in decaying if id(p) in blocks]
        return inside, [p for p in decaying if id(p) not in blocks], others

    def state_shapes(self) -> dict[int, dict[str, torch.Size]]:
        matrices = self.param_groups[0]["params"]
        shapes = {n: each for n, each in super().state_shapes().items() if n >= len(matrices)}
        for alike in group_by_shape(matrices):
            (first,) = (number for number, p in enumerate(matrices) if p is alike[0])
            shapes[first] = {"momentum": torch.Size((len(alike), *alike[0].shape))}
        return shapes

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        matrices, *others = self.param_groups
        for alike in group_by_shape(matrices["params"]):
            self.step_alike(alike, matrices["lr"], matrices["weight_decay"])
        try:
            self.param_groups = others
            super().step()
        finally:
            self.param_groups = [matrices, *others]

    def step_alike(self, weights: list[Tensor], lr: Tensor | float, decay: float) -> None:
        """Updates N weights of one shape (A, B), all of which have a gradient."""
        gradients = torch.stack([w.grad for w in weights if w.grad is not None])  # (N, A, B)
        state = self.state[weights[0]]
        if not state:
            state["momentum"] = torch.zeros_like(gradients)
        momentum = state["momentum"]
        found_inf = getattr(self, "found_inf", None)
        if found_inf is not None:  # where it is 1, weights and momentum must stay as they are
            lr = lr * (1 - found_inf)
            gradients = torch.where(found_inf > 0, momentum, gradients)
        momentum.lerp_(gradients, 1 - MOMENTUM)
        ahead = split_qkv(gradients.lerp_(momentum, MOMENTUM))  # Nesterov's
        update = orthogonal(ahead).float() * (-lr * RMS * math.sqrt(max(ahead.shape[1:])))
        torch._foreach_mul_(weights, 1 - lr * decay)
        torch._foreach_add_(weights, list(update.view_as(gradients)))


class ClippedMuon(Muon, ClippedAdamW):
    """Muon and AdamW with our own kernels: clipping, momentum, updates and the weights' copies."""

    first_group = 1

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        from kernels.optimizers.muon_triton import normed_momentum, update

        factors, (matrices, *_) = self.clip_and_step(), self.param_groups
        ahead = [
            normed_momentum(stack, self.gradients, self.aligned, factors, MOMENTUM)
            for stack in self.stacks
        ]
        lr, decay, kind = matrices["lr"], matrices["weight_decay"], self.copies_dtype
        for stack, x in zip(self.stacks, orthogonal_of_norm_1(ahead), strict=True):
            update(stack, x, factors, lr, RMS * math.sqrt(stack.D), decay, kind)

    def make_state(self) -> None:
        super().make_state()
        for first, *others in group_by_shape(self.param_groups[0]["params"]):
            momentum = first.new_zeros((1 + len(others), *first.shape))
            self.state[first] = {"momentum": momentum}

    def locate(self) -> None:
        from kernels.optimizers.muon_triton import Stack

        super().locate()
        numbers = {p: number for number, p in enumerate(self.parameters)}
        # rows of the kernels' tables by (C, D), the shorter and the longer side of a matrix
        columns: dict[tuple[int, int], list[list[int]]] = {}
        for alike in group_by_shape(self.param_groups[0]["params"]):
            state = self.state[alike[0]]
            state["momentum"] = state["momentum"].contiguous()
            parts = len(split_qkv(alike[0][None]))
            for weight, momentum in zip(alike, state["momentum"], strict=True):
                copy = self.copies.get(weight)
                copies = [None] * parts if copy is None else copy.chunk(parts)
                pieces = zip(weight.chunk(parts), momentum.chunk(parts), copies, strict=True)
                for w, m, c in pieces:
                    begins = w.data_ptr() - weight.data_ptr()
                    row = [w.data_ptr(), m.data_ptr(), address(c), numbers[weight], begins]
                    C, D = sorted(w.shape)
                    columns.setdefault((C, D), []).append([*row, int(len(w) > w.size(1))])
        device = self.steps.device
        self.stacks = [
            Stack(torch.tensor(rows, device=device).t().contiguous(), C, D)
            for (C, D), rows in columns.items()
        ]


def group_by_shape(matrices: list[Parameter]) -> list[list[Tensor]]:
    groups: dict[torch.Size, list[Tensor]] = {}
    for matrix in matrices:
        groups.setdefault(matrix.shape, []).append(matrix)
    return list(groups.values())


def split_qkv(x: Tensor) -> Tensor:
    """Splits c_attn's matrices into those of queries, keys and values: (N, 3B, B) -> (3N, B, B).

    Matrices of another shape come back as they are.
    """
    rows, columns = x.shape[1:]
    return x.view(-1, columns, columns) if rows == 3 * columns else x


def orthogonal(x: Tensor) -> Tensor:
    """Approximates U V^T of each U S V^T by Newton and Schulz: (N, A, B) -> (N, A, B) bfloat16."""
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    tall = x.size(1) > x.size(2)
    (x,) = orthogonal_of_norm_1([x.mT if tall else x])
    return x.mT if tall else x


def orthogonal_of_norm_1(stacks: list[Tensor]) -> list[Tensor]:
    """Orthogonalises stacks of matrices (N, C, D) of norm 1; they share C, and C <= D.

    x becomes (a + b A + c A^2) x with A = x x^T. The bracket is (C, C) whatever D is, so that it is
    computed for all stacks as one batch.
    """
    a, b, c = COEFFICIENTS
    counts, C = [len(x) for x in stacks], stacks[0].size(1)
    squares = stacks[0].new_empty(sum(counts), C, C)
    for _ in range(STEPS):
        for x, square in zip(stacks, squares.split(counts), strict=True):
            torch.bmm(x, x.mT, out=square)
        factors = torch.baddbmm(squares, squares, squares, beta=b, alpha=c)
        factors.diagonal(dim1=1, dim2=2).add_(a)
        pairs = zip(factors.split(counts), stacks, strict=True)
        stacks = [torch.bmm(factor, x) for factor, x in pairs]
    return stacks
