"""Document of a capture's report, verdict first. Called by the verbs report, run and log."""

import re
import shlex

import msgspec
import numpy as np

from profiling.analysis.gpu_time.step_events import StepEvents
from profiling.analysis.records import Bottleneck, LaunchQueue, Report
from profiling.analysis.steps import periodic, update_kernels
from profiling.report.document import (
    MARKDOWN,
    PAGE,
    TERMINAL,
    TEXT,
    Block,
    Bullets,
    Chart,
    Document,
    Facts,
    Finding,
    Paragraph,
    Places,
    Section,
    SideBySide,
    StepBar,
    Timeline,
    Verdict,
    row_ids,
)
from profiling.report.single import step_charts, step_slices, tables
from profiling.report.single.kernel_sources import Links
from profiling.report.single.key_figures import (
    coverage_figure,
    coverage_percent,
    judged,
    judged_step_ms,
    key_figures,
    other_step_times,
    step_spread,
)
from profiling.report.single.lines import Texts, lines_section
from profiling.report.single.timeline_data import timeline_data
from profiling.report.single.verdict_line import verdict_line
from profiling.report.whatif import help_section
from profiling.shared.causes import PART, VERDICT, Part, part_named
from profiling.shared.units import ABSENT, duration_ns, milliseconds, number, percent, size_bytes
from profiling.timeline.personal import without_folders
from profiling.timeline.trace import TOOLS

FAMILIES = "Kernel families"
OTHER_PAGE = "timeline of the HTML page (report --html)"  # in advice that a terminal prints, too
UP_TO = re.compile(r"up to [\d.]+ ")
BAR_HEIGHT = 210  # pixels; a sheet has up to five rows of its legend
SHORT = {  # titles in the navigation, which fits one row of a laptop's screen
    "operator_work": "Shapes",
    "launches": "Geometry",
    "api": "API calls",
    "os_calls": "OS calls",
    "memops": "Copies",
}
OF_A_GPU = "as compute if any kernel computes, else as communication, else as copies, else as idle"
NO_GPU = "Not known: the capture contains no GPU activity."


def report_document(
    report: Report,
    events: StepEvents | None = None,
    sources: Links | None = None,
    texts: Texts | None = None,
) -> Document:
    """The whole report. `events` are for the timeline.

    `sources` are links to the kernels' sources, relative to the page; `texts` the program's own.
    """
    return Document(
        f"{report.capture.file} · {gpu_name(report)}",
        subtitle(report),
        verdict(report),
        [
            step_section(report),
            *help_sections(report),
            phase_section(report),
            *([] if report.on_cpu else gpu_sections(report, events, sources or {})),
            *table_sections(report, sources or {}, texts or {}),
            health_section(report),
            run_section(report),
        ],
        captures=shlex.quote(report.capture.file),
        step_ms=judged_step_ms(report),
    )


def help_sections(report: Report) -> list[Section]:
    found = report.what_if
    return [help_section(found)] if found and found.predictions else []


def gpu_sections(report: Report, events: StepEvents | None, sources: Links) -> list[Section]:
    return [
        Section("families", FAMILIES, [tables.families(report)], short="Families"),
        timeline_section(report, events, sources),
        overlap_section(report),
        roofline_section(report),
    ]


def gpu_name(report: Report) -> str:
    if report.on_cpu:
        return "CPU"
    if report.gpu is None:
        return "no GPU activity"
    return report.capture.gpu.name if report.capture.gpu else f"GPU {report.capture.device}"


def steps_by_tool(report: Report) -> str:
    """A line that says which steps were captured, and by which tool."""
    capture, window = report.capture, report.window
    steps = f"{window.steps} step{'s' if window.steps != 1 else ''}"
    if window.first_iteration is not None:
        last = f" to {window.first_iteration + window.steps - 1}" if window.steps > 1 else ""
        steps += f" ({window.step_name} {window.first_iteration}{last})"
    elif window.step_name is None:
        steps = "no steps found: the whole capture counts as one step"
    elif window.step_name == periodic.STEP_NAME:
        steps += ", recognised by launches that repeat"
    elif window.step_name == update_kernels.STEP_NAME:
        steps += ", recognised by the optimizer's kernels"
    tool = TOOLS.get(capture.kind, capture.kind)
    version = f" {capture.tool_version}" if capture.tool_version else ""
    return f"{steps}, {milliseconds(window.wall_ms)} ms in total, {tool}{version}"


def subtitle(report: Report) -> list[str]:
    """Lines on the steps: which were captured, and of a program of others what they are."""
    return [steps_by_tool(report), *steps_of_program(report)]


def steps_of_program(report: Report) -> list[str]:
    program = report.run and report.run.program_steps
    if not program:
        return []
    facts = [f"{program.steps:,} steps in all"]
    facts += [f"{program.skipped:,} skipped by a GradScaler"] if program.skipped else []
    if program.timed and program.timed < program.steps / 2:  # else a window alone has no times
        facts.append(f"{program.timed:,} of them timed")
    facts += [f"{program.long:,} longer than three medians"] if program.long else []
    return [f"{program.rule[:1].upper()}{program.rule[1:]}; {', '.join(facts)}", *program.notes]


def verdict(report: Report) -> list[Block]:
    bottleneck = report.bottleneck
    gains = [
        f"{VERDICT[gain.verdict].title} {milliseconds(gain.recoverable_ms_per_step)} ms"
        + (f": {gain.why_none}" if gain.why_none else "")
        for gain in bottleneck.ranked
    ]
    most = [bottleneck.most_to_gain] if bottleneck.most_to_gain else []
    figures = key_figures(report)
    further = [*other_step_times(report), *coverage_figure(report)]
    known = [(what, figure) for what, figure in figures if figure != ABSENT]
    each = " per step" if report.window.step_name is not None else ""
    limits = f"Upper limits of the time{each} that each bottleneck costs"
    return [
        Verdict(verdict_line(report), "warning"),
        Facts(known, cards=True, places=PAGE),
        *step_chart(report),
        Bullets(None, bottleneck.evidence, places=TEXT),
        SideBySide(
            [Bullets("Evidence", bottleneck.evidence), page_advice(bottleneck)], places=PAGE
        ),
        Bullets("Next", bottleneck.next, places=TEXT),
        Bullets("Largest possible gain", most, places=TEXT),
        Bullets(limits, gains, folded=True, ids=row_ids("gain", gains)),
        Bullets("This capture does not show", bottleneck.cannot_tell, folded=True),
        *(Finding(f.level, f.what, f.cure, places=MARKDOWN) for f in report.health.findings),
        *(
            Finding(f.level, f.what, f.cure, places=("terminal", "page"))
            for f in report.health.loss_findings
        ),
        Facts([*figures, *further], cards=True, places=MARKDOWN),
        Facts([*figures, *further, step_spread(report)], places=TERMINAL),
    ]


def step_chart(report: Report) -> list[Block]:
    """The step as a bar, and how to read it, for the first screen of a page."""
    whole = judged(report)
    slices, counted = step_slices.of_parts(step_parts(report)), OF_A_GPU
    label = f"{whole}, split by what the GPU did"
    if report.on_cpu:
        slices, counted = step_slices.of_cpu(report)
        label = f"{whole}, split by what the CPU did"
    figure = step_charts.breakdown(slices, whole)
    if figure is None:
        return []
    note = f"Each moment of {whole} counts once: {counted}."
    return [
        Chart("breakdown", label, figure, BAR_HEIGHT, ids=["typical"]),
        Paragraph(note, "note", places=PAGE),
    ]


def page_advice(bottleneck: Bottleneck) -> Bullets:
    """Advice under a heading with the largest possible gain, unless the first line names it."""
    most, lines = bottleneck.most_to_gain, bottleneck.next
    gain = UP_TO.search(most or "")
    named = gain is not None and any(gain[0] in line for line in lines[:1])
    here = [line.replace(OTHER_PAGE, "timeline below") for line in lines]
    return Bullets("Next" if most is None or named else f"Next: {most}", here)


def coverage(report: Report) -> str:
    """The sentence, in every report, on how much of the kernel time belongs to a phase."""
    known = report.attribution
    if known is None:
        return "Attribution: not known, because the capture has no kernels or no ranges."
    return (
        f"Attribution: {percent(coverage_percent(report))} of the kernel time belongs to a phase "
        f"({duration_ns(known.attributed_ns)} of {duration_ns(known.kernel_ns)}; "
        f"{duration_ns(known.by_time_ns)} by time, because the launching thread has no ranges)."
    )


def step_parts(report: Report) -> list[tuple[Part, float]]:
    """(part, ms per step), adding up to the typical step; idle by cause if causes are known.

    Empty for a step that took no time, as a damaged capture may have.
    """
    ms = report.typical.parts_ms if report.typical else {}
    if not sum(ms.values()):
        return []
    in_order = [*(name for name in PART if name in ms), *(name for name in ms if name not in PART)]
    return [(part_named(name), ms[name]) for name in in_order]


def step_section(report: Report) -> Section:
    parts, height = step_parts(report), max(280, 70 + 28 * len(report.families))
    times = step_charts.step_times(report)
    families = step_charts.families(report)
    no_kernels = "Not known: the capture contains no kernels."
    title = "Step times over the window"
    single = "The capture has a single step."
    step_chart = Chart("step_times", "time of each step", times, height, title, single)
    if report.on_cpu:
        return Section("step", title, [step_chart], "Step", places=PAGE)
    beside = [
        step_chart,
        Chart("families", "kernel time by family", families, height, FAMILIES, no_kernels),
    ]
    blocks: list[Block] = [StepBar(parts, whole=judged(report)), SideBySide(beside)]
    return Section("step", "Step times and kernel families", blocks, "Step")


def phase_section(report: Report) -> Section:
    table, owned = tables.phases(report), coverage(report)
    absent = "Not known: the capture contains no ranges; name the phases with --phases."
    height = 90 + 52 * sum(entry.depth == 0 for entry in report.ranges)
    label, figure = "host and GPU time of each phase", step_charts.phases(report)
    chart = Chart("phases", label, figure, height, absent=absent)
    single = tables.ranges(report)
    blocks: list[Block] = [SideBySide([chart, table]), Paragraph(owned, places=TEXT), single]
    lead, title = f"{table.note} {owned}", "Phases: host and GPU time"
    if report.on_cpu:
        blocks, lead, title = [SideBySide([chart, table]), single], table.note, "Phases"
    return Section("phases", title, blocks, "Phases", lead)


def timeline_section(report: Report, events: StepEvents | None, sources: Links) -> Section:
    label = "Timeline of phases, CUDA calls, idle time and what ran on the GPU's streams"
    data = timeline_data(events, sources) if events else None
    lead = "What the host and the GPU did, event by event."
    if events:
        lead = (
            f"{shown_steps(events)} At the top are the host's ranges and calls; below them is "
            "what ran on the GPU and why it was idle. Click for details; press ? for the keys."
        )
    if events and events.others:
        lead += " Every GPU and process of the file has rows, which ▾ folds; times and steps are "
        lead += f"those of GPU {events.device}, process {events.process}."
    if events and events.left_out:
        lead += f" The {events.left_out:,} shortest calls and kernels are not shown."
    blocks: list[Block] = [Timeline("timeline", label, data, NO_GPU), tables.gaps(report, events)]
    return Section("timeline", "Timeline", blocks, lead=lead)


def shown_steps(events: StepEvents) -> str:
    """A sentence that says which steps the page has: all, or some."""
    steps, shown = len(events.shown), int(events.shown.sum())
    median = events.first_number + events.median
    numbers = events.first_number + np.flatnonzero(events.shown)
    if events.chosen and shown < steps:
        which = f"{numbers[0]} to {numbers[-1]}" if shown > 1 else f"{numbers[0]}"
        return (
            f"{shown} of {steps} steps are shown: {which}, as chosen by --steps. Make the page "
            "again with other numbers, or without --steps, to see the others."
        )
    if shown == steps:
        return (
            (f"All {steps} steps are shown; the view opens at the median step, {median}.")
            if steps > 1
            else ""
        )
    return (
        f"{shown} of {steps} steps are shown, those around the median and the slowest: the "
        "window has too many events for one page. report --steps FIRST-LAST chooses others. "
        f"The view opens at the median step, {median}."
    )


def overlap_section(report: Report) -> Section:
    table, queue = tables.overlap(report), report.launch_queue
    blocks: list[Block] = [table, *([queue_facts(queue)] if queue else []), tables.copies(report)]
    lead = (
        f"{table.note} The launch queue holds kernels that were launched and have not started. "
        "Short waits mean that the GPU starts each kernel at once. The driver queues about a "
        "thousand launches; after that the host waits."
    )
    return Section("overlap", "Overlap", blocks, "Overlap", lead)


def queue_facts(queue: LaunchQueue) -> Facts:
    short, median, long = (
        duration_ns(1e3 * us) for us in (queue.short_us, queue.median_us, queue.long_us)
    )
    pairs = [
        (
            f"launches waiting on stream {queue.stream}",
            f"{number(queue.mean_length)} on average, {queue.max_length:,} at most",
        ),
        (
            "how long a launch waits",
            f"median {median}, 5th to 95th percentile {short} to {long}",
        ),
    ]
    return Facts(pairs, heading="Launch queue", ids=["queue"])


def roofline_section(report: Report) -> Section:
    table, figure = tables.roofline(report), step_charts.roofline(report.roofline)
    absent = (
        "Not known: a roofline needs a manifest with the model's shapes and a GPU whose peaks are "
        "known."
    )
    chart = Chart("roofline", "arithmetic rate against intensity", figure, 400, absent=absent)
    return Section("roofline", "Roofline", [chart, table], lead=table.note)


def table_sections(report: Report, sources: Links, texts: Texts) -> list[Section]:
    """The sections of the tables without a chart."""
    others = (
        *(tables.operator_work, tables.launches, tables.api, tables.os_calls, tables.memops),
        *(tables.operators, tables.counters),
    )
    made = [tables.kernels(report, sources), *(make(report) for make in others)]
    kernels, *further = [
        Section(table.name, table.title, [table], SHORT.get(table.name)) for table in made
    ]
    return [kernels, lines_section(report, texts), *further]


def health_section(report: Report) -> Section:
    health, memory = report.health, report.allocations
    times = [*key_figures(report)[:1], *other_step_times(report), step_spread(report)]
    blocks: list[Block] = [Facts(times, heading="Step times", places=PAGE)]
    if health.overhead_percent is not None:
        blocks.append(Paragraph(overhead(health.overhead_percent)))
    blocks += [
        Finding(each.level, each.what, each.cure, ids=[f"finding/{number}"])
        for number, each in enumerate(health.findings)
    ]
    if not health.findings:
        blocks.append(Paragraph("No problems found."))
    if memory is not None:
        pairs = [
            ("allocations", number(memory.count)),
            ("allocated", size_bytes(memory.allocated_bytes)),
            ("freed", size_bytes(memory.freed_bytes)),
            ("peak", size_bytes(memory.peak_bytes)),
        ]
        blocks.append(Facts(pairs, heading="Device memory during the window"))
    places: Places = ("terminal", "page")  # in Markdown the findings stand under the verdict
    return Section("health", "The capture's health", blocks, "Health", places=places)


def overhead(percent: float) -> str:
    if percent >= 0:
        return f"Capturing made a step {percent:.1f} % longer."
    return (
        f"Captured steps were {-percent:.1f} % shorter than the steps around them, which something "
        "delayed."
    )


def run_section(report: Report) -> Section:
    run = msgspec.to_builtins(report.run) or {}
    blocks: list[Block] = [Facts(dotted_pairs(msgspec.to_builtins(report.capture)))]
    if not run:
        missing = "There is no manifest next to this capture: give one with --manifest FILE."
        blocks.insert(0, Paragraph(missing, "note"))
    blocks += [Facts(dotted_pairs(part), heading=name) for name, part in run.items() if part]
    return Section("run", "The run", blocks, "Run", places=("terminal", "page"))


def dotted_pairs(part: object, name: str = "") -> list[tuple[str, str]]:
    """Nested mappings and lists of them, flattened to (dotted key, text of the value)."""
    match part:
        case dict():
            inner = list(part.items())
        case [dict(), *_]:
            inner = list(enumerate(part))
        case _:
            return [(name, fact_text(name, part))]
    return [
        pair for key, value in inner for pair in dotted_pairs(value, f"{name}.{key}".strip("."))
    ]


def fact_text(name: str, value: object) -> str:
    """The text of a fact, without folders, since a page is passed on to others."""
    if value is None:
        return ABSENT
    if name.endswith(("_bytes", "_bytes_per_s")) and isinstance(value, int):
        return size_bytes(value) + ("/s" if name.endswith("_per_s") else "")
    if isinstance(value, list):
        return without_folders((" " if name == "command" else ", ").join(map(str, value))) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).lower() if isinstance(value, bool) else without_folders(str(value))
