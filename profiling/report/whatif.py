"""Document of a step predicted with changes. Called by profiling.verbs.whatif."""

from collections.abc import Callable

from profiling.analysis.whatif.constants import SURE
from profiling.analysis.whatif.whatif_records import Prediction, WhatIf
from profiling.report.document import (
    Block,
    Bullets,
    Column,
    Document,
    Facts,
    Section,
    Table,
    Tone,
    Verdict,
    row_ids,
)
from profiling.shared.units import counted, milliseconds, whole_percent
from profiling.timeline.personal import without_folders

NOTE = (
    "The captured steps, replayed without what a change takes away. Predicted, not measured: for "
    "68 changes to 35 programs that the rules were not made on, such a step was off by 7 % in the "
    "median and by over 21 % in one of ten; 93 % of the gains from 3 % on were seen. A gain was "
    "promised for none of 8 changes that bought nothing, and for 2 of 30 measured later. Low and "
    "high: the interval of the step, since host and GPU may be faster or slower without a "
    "profiler; three of four steps lay in it. Shorter without a figure: by how much cannot be told."
)
WORDS = {
    "--no data": "ready batches",
    "--no sync": "no waits for the GPU",
    "--no copies": "no host-GPU copies",
    "--no allocation": "no allocations",
    "--no cpu": "no long host work",
    "--graphs": "CUDA graphs",
}
SOURCES = {
    "manifest": "measured around the window",
    "given": "as given",
    "estimated": "estimated from the capture",
}
Named = Callable[[Prediction], str]
LIMITS = {"gpu": "the GPU", "host": "the host"}


def whatif_document(result: WhatIf) -> Document:
    passed = result.gates.passed
    tone: Tone = "plain" if passed else "warning"
    title = "Predicted steps" if result.predictions else "The replay"
    blocks: list[Block] = [
        table(result, title, Column("change", "change", "code", True)),
        Bullets("Cannot tell", reasons(result)),
        Bullets("What a change leaves", left(result)),
        Bullets("Measure it", commands(result), places=("markdown", "page")),
        Facts(facts(result), heading="The replay" if result.predictions else None),
    ]
    return Document(
        f"What if: {result.capture}",
        [],
        [Verdict(headline(result), tone), *(Verdict(line, "warning") for line in unscaled(result))],
        [Section("whatif", title, blocks, lead=NOTE if result.predictions else "")],
    )


def best_line(result: WhatIf) -> str | None:
    """A line on the most helpful change of those that a report has, or None."""
    if not result.predictions:
        return None
    best, now = result.predictions[0], milliseconds(result.free.ms)
    if not best.has_size:
        return f"Predicted with {in_words(best)}: a shorter step, {span(best)} ms instead of {now}"
    step = f"{milliseconds(best.step_ms)} ms ({span(best)}) instead of {now}"
    return f"Predicted with {in_words(best)}: {gain(result, best)} less per step, {step}"


def help_section(result: WhatIf) -> Section:
    """The section of a report: the changes that help most, and the commands that measure them."""
    title = "What would help"
    blocks: list[Block] = [
        table(result, title, Column("with", in_words, "text", True)),
        Bullets("What a change leaves", left(result, in_words)),
        Bullets("Measure it", commands(result, in_words)),
    ]
    return Section("whatif", title, blocks, lead=" ".join([NOTE, *unscaled(result)]))


def unscaled(result: WhatIf) -> list[str]:
    """A sentence where the step without a profiler is known, but the replay is another one."""
    free = result.free
    if free.source == "estimated" or free.scaled or abs(free.replayed_ms / free.ms - 1) <= SURE:
        return []
    return [
        f"Predicted steps are not scaled to the {milliseconds(free.ms)} ms without a profiler: "
        f"replayed without a change, a step takes {milliseconds(free.replayed_ms)} ms."
    ]


def as_typed(row: Prediction) -> str:
    return row.change


def in_words(row: Prediction) -> str:
    return WORDS.get(row.change, row.change)


def headline(result: WhatIf) -> str:
    """A sentence on the change that makes the step shortest, or on why none is known to."""
    step = f"{milliseconds(result.free.ms)} ms per step without a profiler"
    shorter = [row for row in result.predictions if row.answer == "shorter"]
    if shorter:
        best = min(shorter, key=lambda row: (not row.has_size, row.step_ms))
        if not best.has_size:
            return f"Predicted: {best.change} makes a step shorter: {span(best)} ms of {step}"
        return (
            f"Predicted: {best.change} makes a step {gain(result, best)} shorter: "
            f"{milliseconds(best.step_ms)} ms ({span(best)}) of {step}"
        )
    if not result.gates.passed:
        reason = result.predictions[0].reason if result.predictions else "the replay is off"
        return f"Cannot tell: {reason}"
    if any(row.answer == "cannot tell" for row in result.predictions):
        return f"Cannot tell whether any of these makes the step shorter: {step}"
    if not result.predictions:
        return f"None of the changes that can be replayed makes the step shorter: {step}"
    return f"None of these makes the step shorter: {step}"


def gain(result: WhatIf, row: Prediction) -> str:
    """Gain in words, with `up to` where the change leaves something that may take longer then."""
    saved = f"{milliseconds(result.free.ms - row.step_ms)} ms ({whole_percent(1 - row.ratio)})"
    return f"up to {saved}" if row.leaves else saved


def span(row: Prediction) -> str:
    return f"{milliseconds(row.low_ms)} to {milliseconds(row.high_ms)}"


def table(result: WhatIf, title: str, named: Column) -> Table:
    free_ms = result.free.ms

    def change(row: Prediction) -> str:
        if row.answer in ("nothing", "cannot tell") or not row.has_size:
            return row.answer
        up_to = "up to " if row.leaves and row.answer == "shorter" else ""
        return f"{up_to}{milliseconds(free_ms - row.step_ms)}"

    def share(row: Prediction) -> str | None:
        told = row.answer in ("shorter", "longer") and row.has_size
        return whole_percent(1 - row.ratio) if told else None

    def limit(row: Prediction) -> str | None:
        return LIMITS[row.limited_by] if has_answer(row) else None

    columns = [
        named,
        Column("gain, ms", change, "number", True),
        Column("gain", share, "number", True),
        Column("step, ms", lambda row: row.step_ms if row.has_size else None, "ms", True),
        Column("low to high", lambda row: span(row) if has_answer(row) else None, "number", True),
        Column("limit then", limit, "text", True),
        Column("GPU alone, ms", "gpu_ms", "ms"),
    ]
    rows = result.predictions
    most, ids = len(rows), row_ids("prediction", rows)
    return Table("whatif", title, NOTE, columns, rows, most=most, limit=most, ids=ids)


def has_answer(row: Prediction) -> bool:
    return row.answer != "cannot tell"


def reasons(result: WhatIf) -> list[str]:
    return [f"{row.change}: {row.reason}" for row in result.predictions if row.reason]


def commands(result: WhatIf, named: Named = as_typed) -> list[str]:
    """The commands that measure the changes, without folders: pages and Markdown are shared."""
    tried = [(named(row), row.try_it) for row in result.predictions if row.try_it]
    return [f"{name}: python -m profiling {without_folders(words)}" for name, words in tried]


def left(result: WhatIf, named: Named = as_typed) -> list[str]:
    told = [row for row in result.predictions if row.leaves and row.answer == "shorter"]
    return [f"{named(row)}: {'; '.join(row.leaves)}" for row in told]


def facts(result: WhatIf) -> list[tuple[str, str]]:
    gates, free = result.gates, result.free
    pairs = [
        (
            "replayed",
            f"{counted(result.steps, 'step')}, {counted(result.operations, 'operation')}, "
            f"{counted(result.calls, 'call')}",
        ),
        ("captured", f"{milliseconds(result.captured_ms)} ms per step"),
        (
            "replayed unchanged",
            f"ends {gates.end_percent:.2f} % off; round and round a step is "
            f"{gates.steady_percent:.1f} % off",
        ),
        ("without a profiler", f"{milliseconds(free.ms)} ms per step, {SOURCES[free.source]}"),
    ]
    if free.launch_us is not None:
        slower = f"{free.launch_us:.1f} µs: the host was {free.host_slowdown:.2f} times slower"
        usual = f"{free.launch_us:.1f} µs: the host was not slowed down"
        pairs.append(("median launch", usual if free.host_slowdown == 1 else slower))
    return pairs
