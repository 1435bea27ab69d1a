"""Document of the report of several ranks, verdict first. Called by the verbs report and run."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from profiling.analysis.ranks.choice import list_numbers
from profiling.analysis.ranks.costs import EQUAL_GPUS, WORTH_TELLING
from profiling.analysis.ranks.rank_records import (
    CollectiveSum,
    MatchedBy,
    RankRow,
    RanksReport,
    Straggler,
)
from profiling.report.document import (
    TEXT,
    Block,
    Bullets,
    Chart,
    Column,
    Document,
    Facts,
    Finding,
    Paragraph,
    Section,
    SideBySide,
    Table,
    Timeline,
    Tone,
    Verdict,
    row_ids,
)
from profiling.report.ranks import rank_charts
from profiling.report.ranks.timeline import shown_note, shown_ranks, steps_note
from profiling.report.single.timeline_data import TimelineData
from profiling.shared.causes import VERDICT
from profiling.shared.units import ABSENT, milliseconds, number, percent

MOST_SAID = 3  # late ranks whose own bottleneck is named
SHOWN, FEW_COLLECTIVES = 8, 4  # rows of ranks and of collectives on the first screen
ROW, LEAST_HEIGHT, MOST_HEIGHT = 26, 200, 900  # pixels of a rank's bar, of a chart


def ranks_document(
    report: RanksReport,
    timeline: TimelineData | None = None,
    pages: Mapping[int, str] | None = None,
) -> Document:
    """The whole report. A page also takes a `timeline` and the addresses of single ranks' `pages`.

    Addresses are relative to the page.
    """
    return Document(
        title(report),
        [steps_line(report)],
        verdict(report),
        [
            ranks_section(report, pages or {}),
            waits_section(report),
            timeline_section(report, timeline),
            collectives_section(report),
            health(report),
        ],
        captures=captures(report),
    )


def captures(report: RanksReport) -> str:
    """The captures as words of a shell: their folder, or the one file that has all ranks."""
    files = {row.file for row in report.ranks}
    return f"{shlex.quote(files.pop())} --ranks" if len(files) == 1 < len(report.ranks) else "."


def first_screen(document: Document) -> Document:
    """The answer, the ranks that matter and the collectives that take most."""
    tables = {
        "ranks": (SHOWN, "ms per step"),
        "shares": (SHOWN, "%"),
        "collectives": (FEW_COLLECTIVES, "ms each"),
    }
    sections = [
        Section(name, "", [replace(block, note="", title=f"{block.title}, {unit}", most=most)])
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Table) and (name := block.name) in tables
        for most, unit in [tables[name]]
    ]
    return replace(document, sections=sections)


def title(report: RanksReport) -> str:
    gpus = sorted({row.gpu for row in report.ranks if row.gpu})
    total = f" of {report.world_size}" if some_are_missing(report) else ""
    return " · ".join([f"{len(report.ranks)}{total} ranks", *gpus])


def some_are_missing(report: RanksReport) -> bool:
    return (report.world_size or 0) > len(report.ranks)


def steps_line(report: RanksReport) -> str:
    numbers = report.steps.iterations
    steps = f"{len(numbers)} step{'s' if len(numbers) != 1 else ''} that all ranks have"
    if report.steps.name:
        last = f" to {numbers[-1]}" if len(numbers) > 1 else ""
        steps += f" ({report.steps.name.strip()} {numbers[0]}{last})"
    if report.clock.aligned_on is None:
        return f"{steps}; their clocks could not be aligned"
    if report.clock.uncertainty_us is None:
        return f"{steps}; times aligned on {report.clock.aligned_on}"
    doubt = number(report.clock.uncertainty_us)
    return f"{steps}; times aligned on {report.clock.aligned_on}, to within {doubt} µs"


def verdict_line(report: RanksReport) -> str:
    if report.straggler:
        return report.evidence[0].rstrip(".")
    if report.verdict == "communication" and some_are_missing(report):
        return "None of these ranks is late: the time goes to transfers, or to the missing ranks"
    return {
        "jitter": "No rank is always late: the ranks delay one another in turns",
        "communication": "No rank is late: the time goes to transfers between the ranks",
        "balanced": "No rank delays the others",
    }.get(report.verdict, "The captures do not show whether a rank delays the others")


def verdict(report: RanksReport) -> list[Block]:
    tone: Tone = "good" if report.verdict == "balanced" else "warning"
    evidence = [*(report.evidence[1:] if report.straggler else report.evidence)]
    evidence += map(rank_sentence, late_rows(report)[:MOST_SAID])
    findings = [Finding(each.level, each.what, each.cure, places=TEXT) for each in report.findings]
    return [
        Verdict(verdict_line(report), tone, ids=["straggler"] if report.straggler else []),
        SideBySide(
            [
                Bullets("Evidence", evidence),
                Bullets("Next", report.straggler.next if report.straggler else []),
            ]
        ),
        *[each for each in findings if each.level == "warning"],
        Facts(figures(report), cards=True),
    ]


def late_rows(report: RanksReport) -> list[RankRow]:
    """The rows of the late ranks, the one that costs most first."""
    late, rows = report.straggler, {row.rank: row for row in report.ranks}
    return [rows[number] for number in (late.rank, *late.with_ranks)] if late else []


def rank_sentence(row: RankRow) -> str:
    bound = VERDICT[row.bottleneck].title if row.bottleneck in VERDICT else row.bottleneck
    return f"Rank {row.rank} by itself is bound by {bound}."


def figures(report: RanksReport) -> list[tuple[str, str]]:
    steps = [row.median_step_ms for row in report.ranks]
    late, jitter = report.straggler, report.jitter_ms_per_step
    saved = f"{milliseconds(late.gains_ms_per_step)} ms" if late else ABSENT
    who = "late ranks" if late is None or late.with_ranks else "the late rank"
    return [
        ("median step", f"{milliseconds(sorted(steps)[len(steps) // 2])} ms"),
        (f"cost of {who}", cost_text(late) if late else cost_without_late_ranks(report)),
        ("saved per step if fixed", saved),
        ("cost of random delays", UNKNOWN if jitter is None else f"{milliseconds(jitter)} ms"),
        ("slowest rank computes", most_to_least_computing(report)),
    ]


def cost_text(late: Straggler) -> str:
    low, high = map(milliseconds, late.costs_between_ms)
    return f"{milliseconds(late.costs_ms_per_step)} ms ({low} to {high})"


UNKNOWN = "unknown"


def cost_without_late_ranks(report: RanksReport) -> str:
    """The words for what late ranks cost where none is named: none only where that is known."""
    known = [row.costs_ms_per_step for row in report.ranks if row.costs_ms_per_step is not None]
    if report.verdict == "unknown" or not known:
        return UNKNOWN
    least_ms = WORTH_TELLING * min(row.step_ms for row in report.ranks)
    by_chance = report.verdict == "jitter" or max(known) < least_ms
    if by_chance:
        return "none"
    of_gpus = max(known) < EQUAL_GPUS * max(row.step_ms for row in report.ranks)
    return f"{milliseconds(max(known))} ms, as equal {'GPUs' if of_gpus else 'hosts'} differ"


def computing_ms(row: RankRow) -> float:
    """Time that the rank would compute if no collective slowed its kernels."""
    return row.compute_ms - row.communication.slowed_ms


def most_to_least_computing(report: RanksReport) -> str:
    computing = [computing_ms(row) for row in report.ranks]
    if min(computing) <= 0:
        return ABSENT
    return f"{max(computing) / min(computing):.2f} times as long as the fastest"


def ranks_section(report: RanksReport, pages: Mapping[int, str]) -> Section:
    rows = shown_rows(report)
    steps = rank_charts.steps_by_rank(rows)
    bar = Chart("ranks_step", "mean step of each rank", steps, height_of(rows))
    table = ranks_table(report, pages)
    lead = table.note + OWN_PAGES * bool(pages) + shown_note(report.ranks)
    return Section("ranks", "Ranks", [bar, table, shares_table(report)], lead=lead)


def shown_rows(report: RanksReport) -> list[RankRow]:
    return [report.ranks[number] for number in shown_ranks(report.ranks)]


def height_of(rows: Sequence[RankRow]) -> int:
    return max(LEAST_HEIGHT, 90 + ROW * len(rows))


RANKS = (
    "The mean step of each rank, in ms. Wait: time in collectives until the last rank arrives, "
    "where no kernel hides it; where a kernel hides it, how much slower that kernel gets. The "
    "other ranks wait for the rank with the shortest wait. Costs: how much shorter every step "
    "would be if this rank were no later than the next one. Slowed: how much longer kernels take "
    "because collectives run at the same time and occupy multiprocessors; computes is without it."
)
COSTS_UNKNOWN = " The captures do not show what a rank costs."
LATE_TOGETHER = (
    " Ranks {} are late together: each of them alone costs little, because the others still wait "
    "for the rest of them."
)
OWN_PAGES = " A rank's number links to its own page."
SLOWS = " Slows: how much longer it makes concurrent kernels."


def ranks_table(report: RanksReport, pages: Mapping[int, str]) -> Table:
    def wait(row: RankRow) -> float | None:
        return row.communication.lost_wait_ms

    def slowed(row: RankRow) -> float:
        return row.communication.slowed_ms

    def gpu_mhz(row: RankRow) -> float | None:
        return row.gpu_clock.sm_mhz if row.gpu_clock else None

    together = late_rows(report)[1:]
    columns = [
        Column("rank", "rank", "number", True, lambda row: pages.get(row.rank)),
        Column("costs alone" if together else "costs", "costs_ms_per_step", "ms", True),
        Column("waits", wait, "ms", True),
        Column("step", "step_ms", "ms", True),
        Column("computes", computing_ms, "ms", True),
        Column("slowed", slowed, "ms", is_slowed(report)),
        Column("idle", "idle_ms", "ms", True),
        Column("transfers", lambda row: row.communication.transfer_ms, "ms", True),
        Column("hidden", lambda row: row.communication.hidden_ms, "ms"),
        Column("copies", "copy_ms", "ms"),
        Column("kernels", "kernels", "number"),
        Column("by itself", lambda row: title_of(row.bottleneck), "text", True),
        Column("GPU", "device", "number"),
        *([Column("GPU clock, MHz", gpu_mhz, "number")] if any(map(gpu_mhz, report.ranks)) else []),
        Column("clock, µs", "clock_offset_us", "number"),
        Column("file", "file", "code"),
    ]
    order = sorted(report.ranks, key=lambda row: inf if (ms := wait(row)) is None else ms)
    note = RANKS + COSTS_UNKNOWN * (report.verdict == "unknown")
    if together:
        note += LATE_TOGETHER.format(list_numbers([row.rank for row in late_rows(report)]))
    ids, most = [f"rank/{report.ranks.index(row)}" for row in order], len(order)
    return Table("ranks", "Ranks", note, columns, order, most=most, limit=16, ids=ids)


def shares_table(report: RanksReport) -> Table:
    """Shares of each rank's step, in the order of the ranks; its note says what is not known."""

    def share(name: str) -> Callable[[RankRow], float | None]:
        return lambda row: getattr(row.shares_percent, name)

    def slowed(row: RankRow) -> float:
        return 100 * row.communication.slowed_ms / row.step_ms

    def computes(row: RankRow) -> float:
        return row.shares_percent.compute - slowed(row)

    columns = [
        Column("rank", "rank", "number", True),
        Column("computes", computes, "percent", True),
        Column("slowed", slowed, "percent", is_slowed(report)),
        Column("communicates", share("communication"), "percent", True),
        Column("of it waits", share("wait"), "percent", True),
        Column("copies", share("copy"), "percent", True),
        Column("idle", share("idle"), "percent", True),
    ]
    unknown = [row.rank for row in report.ranks if row.shares_percent.wait is None]
    note = SHARES
    if unknown:
        who = "any rank" if len(unknown) == len(report.ranks) else f"ranks {list_numbers(unknown)}"
        note += f" Not known of {who}: which part of the communication is waiting."
    title = "Shares of a step" + "; waits are not known" * (len(unknown) == len(report.ranks))
    return Table("shares", title, note, columns, report.ranks, most=SHOWN, limit=16)


SHARES = (
    "Shares of each rank's mean step. Slowed: how much longer kernels take during collectives. "
    "Communicates: collectives that no kernel hides."
)


def is_slowed(report: RanksReport) -> bool:
    """Whether kernels take so much longer beside collectives that it is worth a column."""
    rows = report.ranks
    return any(row.communication.slowed_ms >= WORTH_TELLING * row.step_ms for row in rows)


def title_of(bottleneck: str) -> str:
    return VERDICT[bottleneck].title if bottleneck in VERDICT else bottleneck


def waits_section(report: RanksReport) -> Section:
    rows = shown_rows(report)
    height = min(MOST_HEIGHT, height_of(report.ranks))
    absent = "Not known: no collective of one rank was found on another rank."
    label = "how long each rank waits in each step"
    heat = Chart("waits", label, rank_charts.waits(report), height, absent=absent, numbers=False)
    label = "what each rank costs the others"
    figure = rank_charts.costs(rows)
    costs = Chart("costs", label, figure, height_of(rows), title="What each rank costs")
    lead = (
        "A dark row is a rank that waits for others. A light row between dark rows is a rank "
        "that the others wait for."
    )
    return Section("waits", "Which rank waits when", [heat, costs], lead=lead, places=("page",))


def timeline_section(report: RanksReport, data: TimelineData | None) -> Section:
    label = "Timeline of the compute and the collectives of each rank"
    by = report.clock.aligned_on or "clocks that could not be aligned"
    lead = (
        f"All ranks, aligned on {by}. Each rank has two rows: the work of its GPU, phase by "
        "phase, and its collectives, split where the last rank arrives. Click for details; "
        f"press ? for the keys.{shown_note(report.ranks)}{steps_note(data) if data else ''}"
    )
    blocks: list[Block] = [Timeline("timeline", label, data, "Only on an HTML page.")]
    return Section("timeline", "Timeline", blocks, lead=lead, places=("page",))


def collectives_section(report: RanksReport) -> Section:
    def who(row: CollectiveSum) -> str:
        if row.last_rank is None:
            return ABSENT
        return f"rank {row.last_rank}, {percent(row.last_percent)}"

    def group(row: CollectiveSum) -> str:
        """The group's name; its members are left out where these are all ranks."""
        return row.group.partition(" [")[0] if row.ranks == len(report.ranks) else row.group

    columns = [
        Column("collective", "kind", "text", True),
        Column("group", group, "text"),
        Column("ranks", "ranks", "number"),
        Column("count", "count", "number", True),
        Column("size", "bytes", "bytes", True),
        Column("algorithm", "algorithm", "text"),
        Column("waits", "wait_ms", "ms", True),
        Column("transfers", "transfer_ms", "ms", True),
        Column("exposed", "exposed_ms", "ms", True),
        *([Column("slows", "slowed_ms", "ms", True)] if is_slowed(report) else []),
        Column("GB/s", "bus_gb_per_s", "number", True),
        Column("share of the links", "link_percent", "percent"),
        Column("last to arrive", who, "text", True),
    ]
    note = (
        "One row per kind and size: the mean over ranks, in ms. GB/s: the bus bandwidth, as "
        "NCCL's tests define it, from the time when all ranks have arrived."
    )
    note += SLOWS * is_slowed(report) + matching_text(report)
    rows = report.collectives
    ids = row_ids("collective", rows)
    table = Table("collectives", "Collectives", note, columns, rows, ids=ids)
    return Section("collectives", "Collectives", [table], lead=note)


def matching_text(report: RanksReport) -> str:
    """Continuation on how the collectives were matched, and how sure that is."""
    found = report.matching
    if found.by is None:
        return ""
    text = f" Matched by {MATCHED_BY[found.by]}"
    if found.cut_off:
        text += (
            f", and {found.cut_off:,} that were launched before a capture began by counting back "
            "from the first step"
        )
    if found.ends_agree_percent is not None:
        text += (
            f"; {percent(found.ends_agree_percent)} end at one time on all ranks, as they should"
        )
    return f"{text}."


MATCHED_BY: dict[MatchedBy, str] = {
    "number": "sequence number",
    "size": "kind, size and place in the step, as no sequence numbers were recorded",
    "order": "kind and place in the step, as neither sizes nor sequence numbers were recorded",
}


def health(report: RanksReport) -> Section:
    findings: list[Block] = [
        Finding(each.level, each.what, each.cure, ids=[f"finding/{number}"])
        for number, each in enumerate(report.findings)
    ]
    blocks = findings or [Paragraph("No problems found.")]
    return Section("health", "Health of the captures", blocks, "Health", places=("page",))
