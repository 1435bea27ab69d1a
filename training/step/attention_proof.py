"""Finds out which attention ran; refuses a backend that cannot run here or was replaced.

A fused backend is recognised by the names of its kernels, on a CPU by its operator. The unfused
backends have no such name: for slow and math the evidence is only that no fused one ran, and not
which of the two did.
"""

import warnings
from contextlib import nullcontext

import torch

from cli.errors import one_line
from configs.backends import TABLE
from configs.model import ModelConfig
from model import attend, attention_in_force
from profiling.recording.dynamo import fused_attentions
from profiling.shared.kernel_names import fused_attention, short_name
from profiling.shared.manifest import AttentionFacts
from training.machine.dispatch_mode import PlainDispatchMode

UNFUSED = {each.name for each in TABLE if not each.fused}
SPELLED_OUT = {each.name for each in TABLE if not each.fused and each.sdpa is None}
# what scaled_dot_product_attention dispatches to on a CPU
CPU_OPERATORS = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_attention_math": "math",
}


class OperatorNames(PlainDispatchMode):
    """Dispatch mode that records the names of the ATen operators called within its block."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def try_attention(config: ModelConfig, device: torch.device, dtype: str) -> list[str]:
    """Runs the backend forward and backward once, on one sequence of the model's shape.

    Returns the names of the ATen operators that it called on a CPU. On a GPU the list is empty:
    the kernels of a captured step tell instead. Raises ValueError with PyTorch's reason if the
    backend does not run.
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
        except (RuntimeError, ImportError, OSError) as error:
            # PyTorch warns with the reason of each kernel that refused, then raises
            causes = [str(reason.message).split(" (Triggered")[0] for reason in reasons]
            reason = one_line("; ".join(dict.fromkeys([*causes, str(error)])))
            raise ValueError(
                f"attention={config.attention}: does not run here: {reason}"
            ) from error
    return operators.names


def facts_on_cpu(config: ModelConfig, operators: list[str]) -> AttentionFacts:
    """The backend that ran on a CPU, by the operators that `try_attention` returned.

    Raises ValueError as `check_backend` does.
    """
    fused = [name for name in dict.fromkeys(operators) if name in CPU_OPERATORS]
    ran = CPU_OPERATORS[fused[0]] if fused else unfused_backend(config.attention)
    evidence = f"operators: {', '.join(fused) or 'no fused operator; softmax of the scores'}"
    expected = attention_in_force(config.attention, "cpu", config.dropout)
    return check_backend(AttentionFacts(config.attention, ran, evidence), expected)


def facts_on_cuda(config: ModelConfig, kernels: list[str] | None) -> AttentionFacts:
    """The backend that ran on a GPU, by the names of the kernels in a captured training step.

    `kernels` is None if they could not be read; then nothing is checked. Raises ValueError
    as `check_backend` does.
    """
    if kernels is None:
        return AttentionFacts(config.attention, None, "not checked: needs PyTorch 2.8 or newer")
    kernels_of_backend = fused_attention(kernels)
    ran = "+".join(kernels_of_backend) or unfused_backend(config.attention)
    names = dict.fromkeys(
        short_name(name) for names in kernels_of_backend.values() for name in names
    )
    evidence = (
        f"kernels: {', '.join(names)}" if names else f"no fused kernel among {len(kernels)} kernels"
    )
    return check_backend(AttentionFacts(config.attention, ran, evidence), config.attention)


def unfused_backend(requested: str) -> str:
    """The backend that must have run if no fused one was seen: `requested` if it is unfused."""
    return requested if requested in UNFUSED else "math"


def check_backend(facts: AttentionFacts, expected: str) -> AttentionFacts:
    """Returns `facts`; raises ValueError if another backend than the expected one ran."""
    if facts.requested in SPELLED_OUT and (times := fused_attentions()):
        raise ValueError(
            f"attention={facts.requested}: torch.compile replaced this backend by a fused call "
            f"({times} times); use compile=false"
        )
    if expected != "auto" and facts.ran != expected:
        raise ValueError(
            f"attention={facts.requested}: {facts.ran} ran instead of {expected} ({facts.evidence})"
        )
    return facts
