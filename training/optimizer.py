"""AdamW in nanoGPT's two groups, and the learning rate of an iteration."""

import math
from collections.abc import Iterable, Mapping
from inspect import unwrap
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from configs.schema import Config
from configs.training import TrainingConfig
from kernels.linear import Linear

if TYPE_CHECKING:
    from kernels.adamw_triton import Blocks, Parts, Rule
    from training.shared_update import SharedUpdate

MOMENTS = ("exp_avg", "exp_avg_sq")  # as PyTorch's AdamW calls them in its state


class AdamW(torch.optim.AdamW):
    """PyTorch's, but that it brings no Dynamo into a run that compiles nothing.

    PyTorch keeps these methods out of compiled code, by decorators that import Dynamo when they are
    called: seconds, in the first step. Nothing here compiles the optimizer.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))

    def _init_group(self, group: dict[str, Any], *lists: Any) -> Any:
        """Of sharded parameters and what goes with them this rank's parts: the update is element by
        element, and a DTensor would take the host longer than that for each of them."""
        found = super()._init_group(group, *lists)
        if any(map(is_shared, group["params"][:1])):  # then all are
            for tensors in lists:
                if isinstance(tensors, list):
                    tensors[:] = [t.to_local() if is_shared(t) else t for t in tensors]
        return found

    @staticmethod
    def clipped() -> "type[ClippedAdamW]":
        """What stands in for it with kernels=fused."""
        return ClippedAdamW

    def make_whole(self) -> None:
        """Weights and state that are to be whole on each rank; all ranks call it together."""

    def state_shapes(self) -> dict[int, dict[str, torch.Size]]:
        """What `state` holds once there was a step, by the parameter's number."""
        return {
            number: {"exp_avg": p.shape, "exp_avg_sq": p.shape, "step": torch.Size()}
            for number, p in enumerate(self.numbered())
        }

    def numbered(self) -> list[Tensor]:
        """All parameters, by the numbers that they have in its state."""
        return [p for group in self.param_groups for p in group["params"]]

    @staticmethod
    def groups(model: nn.Module) -> tuple[list[Parameter], ...]:
        """The parameters that decay, and last those that do not: biases and norms."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        return [p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]


def is_shared(tensor: Tensor) -> bool:
    """Whether the ranks share it: a DTensor, whose class takes a second to import."""
    return hasattr(tensor, "to_local")


class ClippedAdamW(AdamW):
    """The norm of all gradients, clipping, AdamW and the weights' copies in two passes.

    The state is PyTorch's AdamW's. An update whose norm is not finite is not made, and none behind
    it: `skipped` counts them. With a GradScaler's found_inf it is that which decides.
    """

    first_group = 0  # that AdamW updates

    def __init__(
        self, groups: Iterable[dict[str, Any]], copies: Mapping[Tensor, Tensor], max_norm: float,
        lr: Tensor, betas: tuple[float, float],
    ):  # fmt: skip
        super().__init__(groups, lr=lr, betas=betas, fused=True, capturable=lr.is_cuda)
        self.parameters = self.numbered()
        updated = self.param_groups[self.first_group :]
        self.updated = [p for group in updated for p in group["params"]]  # the last of all
        self.copies, self.max_norm = copies, max_norm
        self.skipped = torch.zeros((), device=lr.device)
        self.decays = torch.tensor(
            [group["weight_decay"] for group in updated for _ in group["params"]],
            device=lr.device,
        )
        self.gradients_at: list[int] = []

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.clip_and_step()

    def clip_and_step(self) -> Tensor:
        """Returns what gradients are multiplied by and, 1 or 0, whether there was an update."""
        self.prepare()
        factors, rates = self.clip(self.squares(self.blocks))
        self.update(self.blocks_updated, factors, rates)
        return factors

    def prepare(self) -> None:
        if not self.state:
            self.make_state()
            self.locate()
        self.locate_gradients()

    def squares(self, blocks: "Blocks") -> Tensor:
        from kernels.adamw_triton import squares_of

        return squares_of(self.gradients, self.aligned, blocks)

    def clip(self, squares: Tensor, others: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Factors and rates, see kernels.adamw_triton.clip."""
        from kernels.adamw_triton import clip

        lr = self.param_groups[-1]["lr"]  # of all groups
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        return clip(
            squares, others, self.steps, self.decays, lr, scale, found_inf, self.skipped, self.rule
        )

    def update(
        self, blocks: "Blocks", factors: Tensor, rates: Tensor, parts: "Parts | None" = None
    ) -> None:
        from kernels.adamw_triton import update

        gradients = self.gradients[-len(self.updated) :]
        update(self.addresses, gradients, self.aligned, blocks, factors, rates, self.rule, parts)

    @property
    def rule(self) -> "Rule":
        from kernels.adamw_triton import Rule

        group = self.param_groups[-1]  # what the groups differ in lies in `decays`
        beta1, beta2 = group["betas"]
        return Rule(beta1, beta2, group["eps"], self.max_norm, self.copies_dtype)

    @property
    def copies_dtype(self) -> torch.dtype | None:
        return next((copy.dtype for copy in self.copies.values()), None)

    def rehearse(self) -> None:
        """A step that changes nothing but makes state and loads kernels, as no graph can."""
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        self.skipped.fill_(1)  # as behind a norm that was not finite
        try:
            self.step()
        finally:
            self.skipped.zero_()
            self.zero_grad(set_to_none=True)

    def make_state(self) -> None:
        for p in self.updated:
            zeros = {name: torch.zeros_like(p) for name in MOMENTS}
            self.state[p] = {"step": torch.zeros((), device=p.device), **zeros}

    def locate(self) -> None:
        """Where state and copies lie. The counts of steps come to lie in one tensor."""
        states = [self.state[p] for p in self.updated]
        for state, name in product(states, MOMENTS):
            state[name] = state[name].contiguous()
        self.steps = torch.stack([state["step"] for state in states])
        for state, step in zip(states, self.steps, strict=True):
            state["step"] = step
        tensors = [
            (p, *(state[name] for name in MOMENTS), self.copies.get(p))
            for p, state in zip(self.updated, states, strict=True)
        ]
        rows = [[address(tensor, self.first_of(of[0])) for tensor in of] for of in tensors]
        self.addresses = torch.tensor(rows, device=self.steps.device).t().contiguous()
        self.make_blocks()

    def make_blocks(self) -> None:
        from kernels.adamw_triton import blocks_of

        device = self.steps.device
        self.blocks = blocks_of([p.numel() for p in self.parameters], device)
        self.blocks_updated = blocks_of([p.numel() for p in self.updated], device)

    def first_of(self, p: Tensor) -> int:
        """The element that the update of `p` begins with."""
        return 0

    def locate_gradients(self) -> None:
        """Where they lie now. Before a graph is captured: in it nothing is copied from the host."""
        gradients = [p.grad for p in self.parameters]
        assert all(g is not None and g.is_contiguous() for g in gradients), "no gradient to step by"
        at = [self.gradient_at(p) for p in self.parameters]
        if at != self.gradients_at:
            on_cuda = self.skipped.is_cuda
            table = torch.tensor(at, pin_memory=on_cuda)
            self.gradients = table.to(self.skipped.device, non_blocking=True)
            self.gradients_at, self.aligned = at, not any(place % 16 for place in at)

    def gradient_at(self, p: Tensor) -> int:
        """The address of the gradient that the update begins with."""
        return address(p.grad)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self.state:
            self.locate()


def address(tensor: Tensor | None, first: int = 0) -> int:
    """Of its element of number `first`; 0: there is no tensor."""
    return 0 if tensor is None else tensor.data_ptr() + first * tensor.element_size()


def adamw(
    model: nn.Module,
    config: Config,
    device: torch.device,
    kind: type[AdamW] = AdamW,
    shared: "SharedUpdate | None" = None,
) -> AdamW:
    """Matrices and embeddings decay, biases and norms do not. One fused kernel where it exists.

    The learning rate is a tensor on CUDA, so that a captured graph reads the one of the moment.
    With kernels=fused it clips too, and keeps copies for the model's products; where the ranks have
    a `shared` update it makes this one's part of it.
    """
    *decaying, others = kind.groups(model)
    groups = [
        *({"params": group, "weight_decay": config.weight_decay} for group in decaying),
        {"params": others, "weight_decay": 0.0},
    ]
    lr, betas = torch.tensor(config.learning_rate, device=device), (config.beta1, config.beta2)
    if config.kernels == "fused":
        copies = keep_copies(model, config.dtype)
        if shared is not None:
            from training.shared_update import SharedAdamW  # which is one of those above

            return SharedAdamW(groups, copies, config.grad_clip, lr, betas, shared)
        return kind.clipped()(groups, copies, config.grad_clip, lr, betas)
    on_cuda = device.type == "cuda"
    return kind(
        groups,
        lr=lr if on_cuda else config.learning_rate,
        betas=betas,
        fused=device.type in ("cuda", "cpu"),
        capturable=on_cuda,
    )


def keep_copies(model: nn.Module, dtype: str) -> dict[Tensor, Tensor]:
    """A copy in `dtype` of each weight that a product reads; float32 needs none."""
    if dtype == "float32":
        return {}
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    return {layer.weight: layer.keep_copy(getattr(torch, dtype)) for layer in layers}


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Without a synchronisation: on CUDA it is filled in by a kernel, in order."""
    filled: set[int] = set()  # groups share a tensor
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = value
        elif id(group["lr"]) not in filled:
            group["lr"].fill_(value)
            filled.add(id(group["lr"]))


def learning_rate(iteration: int, config: TrainingConfig) -> float:
    """Linear warm-up, then a cosine or a line from learning_rate to min_lr at lr_decay_iters."""
    if not config.decay_lr:
        return config.learning_rate
    if iteration < config.warmup_iters:
        return config.learning_rate * (iteration + 1) / (config.warmup_iters + 1)
    if iteration >= config.lr_decay_iters:
        return config.min_lr
    done = (iteration - config.warmup_iters) / (config.lr_decay_iters - config.warmup_iters)
    left = 1.0 - done if config.lr_decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return config.min_lr + left * (config.learning_rate - config.min_lr)
