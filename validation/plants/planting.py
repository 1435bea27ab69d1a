"""Plants, and functions that put a fault into a method of the trainer."""

from collections.abc import Callable
from dataclasses import dataclass, field

from training.step.graphs import GraphedStep
from training.step.step import Step


@dataclass(frozen=True)
class Plant:
    """A fault, the keys that make it dominate, and the verdict that finds it."""

    verdict: str
    keys: str
    put: Callable[[], None] = lambda: None
    without: str = ""  # keys of the run without the fault; empty: `keys`
    work_without: float = 1  # work of a step without the fault, in steps with the fault
    ranks: int = 1
    late_rank: int | None = None  # rank that has the fault; None: all ranks, or none
    environ: dict[str, str] = field(default_factory=dict)


def replace_method(owner: type, method: str, function: Callable[..., object]) -> None:
    setattr(owner, method, function)


def call_before(owner: type, method: str, fault: Callable[..., object]) -> None:
    """Call `fault` with the method's arguments each time before the method."""
    original = getattr(owner, method)

    def with_fault(*arguments: object) -> object:
        fault(*arguments)
        return original(*arguments)

    replace_method(owner, method, with_fault)


def call_before_update(fault: Callable[..., object]) -> None:
    for step in (Step, GraphedStep):
        call_before(step, "update", fault)
