"""Tells which attention ran: refuses a backend that does not run here, or that something replaced.

A fused kernel proves itself by its name, on a CPU by its operator. The unfused backends have none:
for slow and math there is the evidence that no fused one ran, and not which of them did.
"""

import warnings
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cli.errors import one_line
from configs.attention import TABLE
from configs.model import ModelConfig
from model import attend, attention_in_force
from profiling.capture.dynamo import fused_attentions
from profiling.kernel_names import fused_attention, short_name
from profiling.manifest import AttentionFacts

UNFUSED = {each.name for each in TABLE if not each.fused}
SPELLED_OUT = {each.name for each in TABLE if not each.fused and each.sdpa is None}
# what scaled_dot_product_attention dispatches to on a CPU
CPU_OPERATORS = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_attention_math": "math",
}


class OperatorNames(TorchDispatchMode):
    """Records the ATen operators that are called inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # PyTorch's name
        return False  # True imports Dynamo, which takes seconds, also where nothing compiles

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # PyTorch's own signature
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def try_attention(config: ModelConfig, device: torch.device, dtype: str) -> list[str]:
    """Runs the backend forward and backward once, on one sequence of the model's shape.

    Returns the ATen operators it called on a CPU; on a GPU the kernels will tell instead. Raises
    ValueError with PyTorch's reason when it cannot.
    """
    shape = (1, config.n_head, config.block_size, config.n_embd // config.n_head)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(shape, generator=generator).to(device, getattr(torch, dtype)).requires_grad_()
        for _ in range(3)
    )
    mask = torch.ones(shape[2], shape[2], dtype=torch.bool, device=device).tril()
    operators = OperatorNames()
    watch = operators if device.type == "cpu" else nullcontext()
    with warnings.catch_warnings(record=True) as reasons, watch:
        warnings.simplefilter("always")
        try:
            attend(q, k, v, config.attention, config.dropout, mask).sum().backward()
        except (RuntimeError, NotImplementedError, ImportError) as error:
            # PyTorch warns of each kernel's reason, then raises
            said = [str(reason.message).split(" (Triggered")[0] for reason in reasons]
            reason = one_line("; ".join(dict.fromkeys([*said, str(error)])))
            raise ValueError(
                f"attention={config.attention}: does not run here: {reason}"
            ) from error
    return operators.names


def seen_on_cpu(config: ModelConfig, operators: list[str]) -> AttentionFacts:
    """From the operators that `try_attention` saw. Raises ValueError as `checked` does."""
    fused = [name for name in dict.fromkeys(operators) if name in CPU_OPERATORS]
    ran = CPU_OPERATORS[fused[0]] if fused else without_fused(config.attention)
    evidence = f"operators: {', '.join(fused) or 'no fused one; softmax of the scores'}"
    expected = attention_in_force(config.attention, "cpu", config.dropout)
    return checked(AttentionFacts(config.attention, ran, evidence), expected)


def seen_on_cuda(config: ModelConfig, kernels: list[str] | None) -> AttentionFacts:
    """From the names of the kernels in a captured training step; None: they could not be read.

    Raises ValueError as `checked` does.
    """
    if kernels is None:
        return AttentionFacts(config.attention, None, "not checked: needs PyTorch 2.8 or newer")
    found = fused_attention(kernels)
    ran = "+".join(found) or without_fused(config.attention)
    names = dict.fromkeys(short_name(name) for names in found.values() for name in names)
    evidence = (
        f"kernels: {', '.join(names)}" if names else f"no fused one in {len(kernels)} kernels"
    )
    return checked(AttentionFacts(config.attention, ran, evidence), config.attention)


def without_fused(requested: str) -> str:
    """The backend where no fused one was seen: the one that was asked for if it is unfused."""
    return requested if requested in UNFUSED else "math"


def checked(facts: AttentionFacts, expected: str) -> AttentionFacts:
    """Raises ValueError when something other than the expected backend ran."""
    if facts.requested in SPELLED_OUT and (times := fused_attentions()):
        raise ValueError(
            f"attention={facts.requested}: torch.compile rewrote it into a fused call "
            f"({times} times); use compile=false"
        )
    if expected != "auto" and facts.ran != expected:
        raise ValueError(
            f"attention={facts.requested}: {facts.ran} ran instead of {expected} ({facts.evidence})"
        )
    return facts
