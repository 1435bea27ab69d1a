"""Proves the attention switch: refuses a backend that does not run here, names what did run."""

import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from cli.errors import one_line
from configs.model import ModelConfig
from model import attend, attention_in_force
from profiling.kernel_names import fused_attention, short_name

# what scaled_dot_product_attention dispatches to on a CPU
CPU_OPERATORS = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_attention_math": "math",
}


@dataclass
class AttentionProof:
    """What ran, and how that is known. `ran` is slow, math, ... or None: it could not be seen."""

    requested: str
    ran: str | None
    evidence: str


class OperatorNames(TorchDispatchMode):
    """Records the ATen operators that are called inside it."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
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
        except (RuntimeError, NotImplementedError) as error:
            # PyTorch warns of each kernel's reason, then raises
            said = [str(reason.message).split(" (Triggered")[0] for reason in reasons]
            reason = one_line("; ".join(dict.fromkeys([*said, str(error)])))
            raise ValueError(
                f"attention={config.attention}: does not run here: {reason}"
            ) from error
    return operators.names


def prove_on_cpu(config: ModelConfig, operators: list[str]) -> AttentionProof:
    """From the operators that `try_attention` saw."""
    expected = attention_in_force(config.attention, "cpu", config.dropout)
    fused = [name for name in dict.fromkeys(operators) if name in CPU_OPERATORS]
    without_fused = "slow" if config.attention == "slow" else "math"
    ran = CPU_OPERATORS[fused[0]] if fused else without_fused
    evidence = f"operators: {', '.join(fused) or 'no fused one; softmax of the scores'}"
    return checked(AttentionProof(config.attention, ran, evidence), expected)


def prove_on_cuda(config: ModelConfig, kernels: list[str] | None) -> AttentionProof:
    """From the names of the kernels in a captured training step; None: they could not be read."""
    if kernels is None:
        return AttentionProof(config.attention, None, "not checked: needs PyTorch 2.8 or newer")
    found = fused_attention(kernels)
    without_fused = "slow" if config.attention == "slow" else "math"
    ran = "+".join(found) or without_fused
    names = dict.fromkeys(short_name(name) for names in found.values() for name in names)
    evidence = (
        f"kernels: {', '.join(names)}" if names else f"no fused one in {len(kernels)} kernels"
    )
    return checked(AttentionProof(config.attention, ran, evidence), config.attention)


def checked(proof: AttentionProof, expected: str) -> AttentionProof:
    """Raises ValueError when something other than the requested backend ran."""
    if counters["inductor"]["fuse_attention"] and proof.requested == "slow":
        raise ValueError(
            "attention=slow: torch.compile rewrote it into a fused call "
            f"({counters['inductor']['fuse_attention']} times); use compile=false"
        )
    if expected != "auto" and proof.ran != expected:
        raise ValueError(
            f"attention={proof.requested}: {proof.ran} ran instead of {expected} ({proof.evidence})"
        )
    return proof
