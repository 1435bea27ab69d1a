"""Launches an iteration kernel by kernel: forward, backward, averaging of gradients, update."""

from typing import Protocol

import torch
from torch import Tensor

from configs.schema import Config
from model import GPT
from profiling.recording.spans import NoSpans, Spans
from training.optimizers.optimizer import AdamW, set_learning_rate
from training.ranks.distributed import Ranks
from training.step.layout import Layout, make_layout


class TrainingStep(Protocol):
    """Interface of a training step.

    An iteration calls forward and backward `micro_steps` times, then average_gradients and update.
    Step launches the kernels one by one; training.step.graphs.GraphedStep replays CUDA graphs of
    them.
    """

    micro_steps: int

    @property
    def readings(self) -> dict[str, Tensor]: ...  # scalars of this rank by metrics.jsonl's names
    def forward(self, x: Tensor, y: Tensor) -> Tensor: ...  # returns the loss for backward
    def backward(self, loss: Tensor) -> None: ...
    def average_gradients(self) -> None: ...
    def update(self, learning_rate: float) -> None: ...


class Step:
    """A training step that launches its kernels one by one, with the model compiled or not.

    Pass `layout` if the model is laid out on the ranks already, for the optimizer's parameters.
    """

    def __init__(
        self,
        model: GPT,
        optimizer: AdamW,
        config: Config,
        ranks: Ranks,
        spans: Spans | NoSpans | None = None,
        layout: Layout | None = None,
    ):
        self.layout = layout or make_layout(model, config, ranks)
        self.model = self.layout.model
        self.vocab_size = model.lm_head.out_features
        self.optimizer = optimizer
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.micro_steps = config.gradient_accumulation_steps // ranks.world_size
        self.scaler = torch.amp.GradScaler(
            ranks.device.type, enabled=config.dtype == "float16", init_scale=2.0**16
        )
        self.autocast = autocast(config.dtype, ranks.device)
        self.loss = torch.zeros((), device=ranks.device)  # the mean over the micro-steps so far
        # The scaler of float16 skips bad updates itself, and goes on after them.
        if not self.scaler.is_enabled():
            optimizer.skip_bad_updates()
        # They are read when a row is logged. CUDA graphs write into the same tensors each time.
        self.readings = {"train/loss": self.loss, **optimizer.readings}
        self.micro_step = 0  # the next one in this iteration
        self.spans = spans or NoSpans()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns this micro-batch's share of the loss; x and y are (B, T) token ids."""
        self.layout.begin_micro_step(last=self.micro_step == self.micro_steps - 1)
        with self.autocast:
            _, loss = self.model(x, y)
        share = loss / self.micro_steps if self.micro_steps > 1 else loss
        if self.micro_step == 0:
            self.loss.copy_(share.detach())
        else:
            self.loss.add_(share.detach())
        self.micro_step += 1
        return share

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def average_gradients(self) -> None:
        """Waits until the gradients are averaged; backward has sent them as they came."""
        if self.layout.waits_at_end:
            with self.spans.phase("gradient_sync"):
                self.layout.wait_for_gradients()

    def update(self, learning_rate: float) -> None:
        """Clips the gradients, lets the optimizer step and drops the gradients."""
        set_learning_rate(self.optimizer, learning_rate)
        self.clip_and_step()
        self.discard()

    def clip_and_step(self) -> None:
        self.optimizer.prepare_gradients(self.parameters, self.scaler, self.spans)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def try_micro_step(self, x: Tensor, y: Tensor) -> None:
        """Runs an iteration's last micro-step and the averaging after it, and drops the result."""
        with self.layout.in_stream():
            self.micro_step = self.micro_steps - 1
            self.backward(self.forward(x, y))
            self.layout.wait_for_gradients()
            self.discard()

    def discard(self) -> None:
        """Drops the gradients of the micro-steps so far, and counts micro-steps from 0 again."""
        self.optimizer.zero_grad(set_to_none=True)
        self.micro_step = 0


def autocast(dtype: str, device: torch.device, cache: bool = True) -> torch.autocast:
    """Context that computes products and attention in `dtype`, the rest in float32.

    The rest is weights, norms, softmax and loss. With `cache` each weight is rounded only once
    within the context.
    """
    in_16_bits = dtype in ("bfloat16", "float16")
    kind = getattr(torch, dtype)
    return torch.autocast(device.type, kind, enabled=in_16_bits, cache_enabled=cache)
