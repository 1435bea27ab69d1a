"""Read off the operators of a run without a GPU what makes them slow. Called by cpu and advice."""

from dataclasses import dataclass

from profiling.analysis.records import Report

SMALL_US = 5.0  # mean self time of an operator: dispatch takes as long as what it computes
MANY = 500  # operators a step
WORTH = 0.25  # of the step
COPIES = ("aten::copy_", "aten::contiguous", "aten::clone", "aten::_to_copy")
COPIES_WORTH = 0.15  # of the step
SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data")
SOFTMAX_WORTH = 0.05  # of the step
FUSED_ATTENTION = ("aten::_scaled_dot_product", "aten::scaled_dot_product_attention")
COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph")  # around what inductor wrote
DENSE = "aten::embedding_dense_backward"
DENSE_WORTH = 0.05  # of the step: what it clears is as large as the table


@dataclass(frozen=True)
class OperatorHabits:
    """Traits that the operators of a step share; ms a step, None where it is not so."""

    small: tuple[int, float] | None = None  # (calls a step, mean us) where most are small
    copies_ms: float | None = None
    dense_ms: float | None = None  # of gradients as large as an embedding
    softmax_ms: float | None = None  # of attention that is written out
    plain_optimizer: bool = False  # one that could be fused, and is not, takes much of the step


def has_float64_inputs(report: Report) -> bool:
    """Whether the model's inputs were float64, as the hook saw them, without a GPU."""
    steps = report.run.program_steps if report.run else None
    return report.on_cpu and steps is not None and any(map(is_float64, steps.inputs))


def is_float64(described: str) -> bool:
    return described.startswith("float64:")


def operator_habits(report: Report) -> OperatorHabits:
    steps, step_ms = report.window.steps, report.window.step_ms.mean
    if not report.operators or not report.on_cpu:
        return OperatorHabits()
    count = sum(row.count for row in report.operators) / steps
    own_ms = sum(row.self_ns for row in report.operators) / 1e6 / steps
    small = count >= MANY and 1000 * own_ms / count <= SMALL_US and own_ms >= WORTH * step_ms
    copies_ms, softmax_ms = (own_ms_of(report, names) for names in (COPIES, SOFTMAX))
    dense_ms = sum(row.total_ns for row in report.operators if row.name == DENSE) / 1e6 / steps
    optimizer_ms = sum(row.host_ms for row in report.phases if row.name == "optimizer") / steps
    written = report.program.attention and not ran(report, FUSED_ATTENTION)
    return OperatorHabits(
        small=(round(count), 1000 * own_ms / count) if small else None,
        copies_ms=copies_ms if copies_ms >= COPIES_WORTH * step_ms else None,
        softmax_ms=softmax_ms if written and softmax_ms >= SOFTMAX_WORTH * step_ms else None,
        dense_ms=dense_ms if dense_ms >= DENSE_WORTH * step_ms else None,
        plain_optimizer=report.program.fused_optimizer is False and optimizer_ms >= WORTH * step_ms,
    )


def is_compiled(report: Report) -> bool:
    """Whether torch.compile made some of what ran without a GPU."""
    return report.on_cpu and ran(report, COMPILED)


def own_ms_of(report: Report, names: tuple[str, ...]) -> float:
    """Milliseconds a step of these operators, without those inside them."""
    own_ns = sum(row.self_ns for row in report.operators or [] if row.name in names)
    return own_ns / 1e6 / report.window.steps


def ran(report: Report, prefixes: str | tuple[str, ...]) -> bool:
    """Whether an operator ran whose name begins so."""
    return any(row.name.startswith(prefixes) for row in report.operators or [])
