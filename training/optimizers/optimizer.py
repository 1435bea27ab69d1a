"""AdamW with nanoGPT's two parameter groups and its clipping, and the learning-rate schedule."""

import math
from collections.abc import Iterable, Mapping
from inspect import unwrap
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from configs.training import TrainingConfig
from profiling.recording.spans import NoSpans, Spans

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from kernels.optimizers.adamw_triton import Blocks, Parts, Rule

MOMENTS = ("exp_avg", "exp_avg_sq")  # as PyTorch's AdamW calls them in its state


class AdamW(torch.optim.AdamW):
    """PyTorch's AdamW with clipping, and no import of Dynamo in a run that compiles nothing.

    An update is `prepare_gradients` and then `step`. They clip the gradients to a total norm of
    `max_norm`; 0 means no clipping. From the first norm that is not finite on they skip all
    updates: such gradients must not reach the weights, and the host looks at the loss only now and
    then. With a GradScaler it is the scaler that decides, for each update by itself.

    PyTorch's decorators keep these methods out of compiled code, and import Dynamo when called:
    seconds, in the first step. Nothing here compiles the optimizer, so they are unwrapped.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))

    def __init__(self, groups: Iterable[dict[str, object]], max_norm: float = 0.0, **settings: Any):
        super().__init__(groups, **settings)
        self.max_norm = max_norm
        device = self.all_parameters()[0].device
        self.spoilt = torch.zeros((), device=device)  # nan from the first bad gradient on
        self.skips = torch.zeros((), device=device)  # 1 if the next update is skipped, else 0
        self.skipped = torch.zeros((), device=device)  # number of updates skipped so far
        # Scalars by metrics.jsonl's names. CUDA graphs write into the same tensors each time.
        self.readings: dict[str, Tensor] = {}

    def skip_bad_updates(self) -> None:
        """Has updates skipped by their norm, and counted in `readings`: for steps without a scaler.

        PyTorch's fused kernel reads `found_inf`.
        """
        self.readings["train/skipped_updates"] = self.skipped
        if self.defaults["fused"]:
            self.found_inf = self.skips

    def prepare_gradients(
        self, parameters: list[Parameter], scaler: torch.amp.GradScaler, spans: Spans | NoSpans
    ) -> None:
        """Clips the gradients, whose norm decides whether `step` is skipped.

        A loss scaler decides that itself.
        """
        if not scaler.is_enabled():
            self.skip_if_not_finite(self.clip_gradients(parameters, scaler, spans))
        elif self.max_norm > 0:
            self.clip_gradients(parameters, scaler, spans)

    def clip_gradients(
        self, parameters: list[Parameter], scaler: torch.amp.GradScaler, spans: Spans | NoSpans
    ) -> Tensor:
        """Clips the gradients to `max_norm`. Returns their total norm from before that."""
        if self.max_norm == 0:
            return total_norm(local_gradients(parameters), parameters[0])
        with spans.phase("clip"):
            scaler.unscale_(self)
            gradients = local_gradients(parameters)
            norm = total_norm(gradients, parameters[0])
            bound = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(gradients, bound)
            return norm

    def skip_if_not_finite(self, norm: Tensor) -> None:
        """Has all updates skipped from the first `norm` that is not finite on.

        0 * inf is nan, nan stays in `spoilt`, and `skips` becomes 1 where x != x. That is three
        small kernels without a wait. The norm is of averaged gradients, so that all ranks agree.
        """
        self.spoilt.add_(norm, alpha=0)
        torch.ne(self.spoilt, self.spoilt, out=self.skips)
        self.skipped.add_(self.skips)

    def locate_gradients(self) -> None:
        """Prepares the capture of an update as a CUDA graph, once the gradients are allocated.

        Nothing to do here: PyTorch's kernels are launched with the addresses.
        """

    def rehearse(self) -> None:
        """Makes the state now: if a graph made it, each replay would reset it.

        A step at learning rate 0 leaves the weights as they are; the state that it made is cleared.
        """
        if self.state:
            return
        set_learning_rate(self, 0.0)
        for p in self.all_parameters():
            p.grad = torch.zeros_like(p)
        self.step()
        self.zero_grad(set_to_none=True)
        for state in self.state.values():
            for tensor in state.values():
                tensor.zero_()

    def _init_group(self, group: dict[str, object], *lists: object) -> bool:
        """Fills `lists` as PyTorch does, with this rank's local part in place of each DTensor.

        The update is element by element, so that the local parts suffice; handling a DTensor would
        take the host longer than the update.
        """
        has_complex: bool = super()._init_group(group, *lists)  # type: ignore[no-untyped-call]
        params = group["params"]
        if isinstance(params, list) and any(map(is_dtensor, params[:1])):  # it stands for all
            for tensors in lists:
                if isinstance(tensors, list):
                    tensors[:] = [local(t) for t in tensors]
        return has_complex

    def make_whole(self) -> None:
        """Completes weights and state on each rank, for a checkpoint; all ranks call it together.

        Nothing to do here: every rank has them in full already.
        """

    def state_shapes(self) -> dict[int, dict[str, torch.Size]]:
        """Shapes of the tensors in `state` after a step, by the parameter's number and by name."""
        return {
            number: {"exp_avg": p.shape, "exp_avg_sq": p.shape, "step": torch.Size()}
            for number, p in enumerate(self.all_parameters())
        }

    def all_parameters(self) -> list[Tensor]:
        """All parameters, in the order by which the state numbers them."""
        return [p for group in self.param_groups for p in group["params"]]

    @staticmethod
    def groups(model: nn.Module) -> tuple[list[Parameter], ...]:
        """The parameters in groups: those that decay, and last those that do not, biases and norms.

        A subclass may have several groups that decay.
        """
        parameters = [p for p in model.parameters() if p.requires_grad]
        return [p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]


def is_dtensor(tensor: Tensor) -> bool:
    """Whether the ranks share it as a DTensor; does not import that class, which takes a second."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a DTensor, in the same memory; another tensor as it is."""
    return cast("DTensor", tensor).to_local() if is_dtensor(tensor) else tensor


@torch.no_grad()
def local_gradients(parameters: list[Parameter]) -> list[Tensor]:
    return [local(p.grad) for p in parameters if p.grad is not None]


def total_norm(gradients: list[Tensor], parameter: Tensor) -> Tensor:
    """Norm of all gradients; those of the other ranks, too, if `parameter` is a DTensor."""
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    if not is_dtensor(parameter):
        return norm
    square = norm.square()
    dist.all_reduce(square, group=cast("DTensor", parameter).device_mesh.get_group("shard"))
    return square.sqrt()


class ClippedAdamW(AdamW):
    """AdamW with our own kernels: gradient norm, clipping, update and the weights' copies.

    All of it is in `step`, in two passes over the gradients. Its state is that of PyTorch's AdamW.
    """

    first_group = 0  # index of the first parameter group that AdamW's kernels update

    def __init__(
        self, groups: Iterable[dict[str, object]], copies: Mapping[Tensor, Tensor], max_norm: float,
        lr: Tensor, betas: tuple[float, float],
    ):  # fmt: skip
        super().__init__(groups, max_norm, lr=lr, betas=betas, fused=True, capturable=lr.is_cuda)
        self.parameters = self.all_parameters()
        updated = self.param_groups[self.first_group :]
        self.updated = [p for group in updated for p in group["params"]]  # last in `parameters`
        self.copies = copies
        self.decays = torch.tensor(
            [group["weight_decay"] for group in updated for _ in group["params"]],
            device=lr.device,
        )
        self.gradients_at: list[int] = []

    def skip_bad_updates(self) -> None:
        self.readings["train/skipped_updates"] = self.skipped  # the kernels read it, too

    def prepare_gradients(self, *_: object) -> None:
        """Nothing to do here: `step` reads the gradients as they are."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.clip_and_step()

    def clip_and_step(self) -> Tensor:
        """Makes one update. Returns the factor for the gradients, and 1 if it was made, else 0."""
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
        from kernels.optimizers.adamw_triton import squares_of

        return squares_of(self.gradients, self.aligned, blocks)

    def clip(self, squares: Tensor, others: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Factors for the gradients and rates of the update, as
        kernels.optimizers.adamw_triton.clip does."""
        from kernels.optimizers.adamw_triton import clip

        lr = self.param_groups[-1]["lr"]  # the same tensor in all groups
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        return clip(
            squares, others, self.steps, self.decays, lr, scale, found_inf, self.skipped, self.rule
        )

    def update(
        self, blocks: "Blocks", factors: Tensor, rates: Tensor, parts: "Parts | None" = None
    ) -> None:
        from kernels.optimizers.adamw_triton import update

        gradients = self.gradients[-len(self.updated) :]
        update(self.addresses, gradients, self.aligned, blocks, factors, rates, self.rule, parts)

    @property
    def rule(self) -> "Rule":
        from kernels.optimizers.adamw_triton import Rule

        group = self.param_groups[-1]  # groups differ in weight decay alone, which is in `decays`
        beta1, beta2 = group["betas"]
        return Rule(beta1, beta2, group["eps"], self.max_norm, self.copies_dtype)

    @property
    def copies_dtype(self) -> torch.dtype | None:
        return next((copy.dtype for copy in self.copies.values()), None)

    def rehearse(self) -> None:
        """Makes the state and loads the kernels, which cannot happen while a graph is captured.

        It does so by a step that changes no weight.
        """
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        self.skipped.fill_(1)  # as after a norm that was not finite, so that nothing is updated
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
        """Builds the table of addresses of weights, moments and copies that the kernels read.

        It also moves all step counts into one tensor, `steps`, and makes the moments contiguous.
        """
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
        rows = [[address(tensor, self.first_of(row[0])) for tensor in row] for row in tensors]
        self.addresses = torch.tensor(rows, device=self.steps.device).t().contiguous()
        self.make_blocks()

    def make_blocks(self) -> None:
        from kernels.optimizers.adamw_triton import blocks_of

        device = self.steps.device
        self.blocks = blocks_of([p.numel() for p in self.parameters], device)
        self.blocks_updated = blocks_of([p.numel() for p in self.updated], device)

    def first_of(self, p: Tensor) -> int:
        """Index of the element of `p` with which this rank's update begins."""
        return 0

    def locate_gradients(self) -> None:
        """Updates the table of the gradients' addresses, if they have moved.

        While a graph is captured nothing can be copied from the host.
        """
        gradients = [p.grad for p in self.parameters]
        assert all(g is not None and g.is_contiguous() for g in gradients), "no gradient to step by"
        at = [self.gradient_at(p) for p in self.parameters]
        if at != self.gradients_at:
            on_cuda = self.skipped.is_cuda
            table = torch.tensor(at, pin_memory=on_cuda)
            self.gradients = table.to(self.skipped.device, non_blocking=True)
            self.gradients_at, self.aligned = at, not any(place % 16 for place in at)

    def gradient_at(self, p: Tensor) -> int:
        """Device address of the first element of `p`'s gradient that this rank's update reads."""
        return address(p.grad)

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        super().load_state_dict(state_dict)
        if self.state:
            self.locate()


def address(tensor: Tensor | None, first: int = 0) -> int:
    """Device address of element `first` of `tensor`, or 0 for None."""
    return 0 if tensor is None else tensor.data_ptr() + first * tensor.element_size()


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Sets the learning rate without a synchronisation: on CUDA a kernel fills it in, in order."""
    filled: set[int] = set()  # ids of tensors, because groups share one
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = value
        elif id(group["lr"]) not in filled:
            group["lr"].fill_(value)
            filled.add(id(group["lr"]))


def learning_rate(iteration: int, config: TrainingConfig) -> float:
    """Learning rate of an iteration.

    A linear warm-up, then a cosine or a line from learning_rate to min_lr at lr_decay_iters.
    """
    if not config.decay_lr:
        return config.learning_rate
    if iteration < config.warmup_iters:
        return config.learning_rate * (iteration + 1) / (config.warmup_iters + 1)
    if iteration >= config.lr_decay_iters:
        return config.min_lr
    done = (iteration - config.warmup_iters) / (config.lr_decay_iters - config.warmup_iters)
    left = 1.0 - done if config.lr_decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return config.min_lr + left * (config.learning_rate - config.min_lr)
