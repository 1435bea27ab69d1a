"""Document of where a run hangs. Called by profiling.verbs.hang."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from profiling.analysis.hang.analysis import HANG_S
from profiling.analysis.hang.hang_records import Call, Hang, Rank, Stuck, Variant
from profiling.report.document import (
    Block,
    Bullets,
    Column,
    Document,
    Facts,
    Finding,
    Section,
    Table,
    Tone,
    Verdict,
)
from profiling.shared.units import ABSENT

MOST_FRAMES = 3  # frames of a stack that are printed
MOST_SAID = 5  # distinct errors and stacks that are printed
TONES: dict[str, Tone] = {"hang": "bad", "error": "bad", "moment": "note", "none": "good"}
LOST = "the process died or could not be reached"
ADVICE = {
    "absent": (
        "See what a rank that is alive does now: py-spy dump --pid PID, on its host.",
        "After its last call, look for a branch that the other ranks do not take: on the rank, "
        "on its data, or after a caught error.",
    ),
    "mismatch": (
        "Compare the two call sites: a branch on the rank, or on a value that differs between "
        "ranks, leads to one of them. Ranks that skipped a collective are one number behind from "
        "there on.",
    ),
    "entered": (
        "The calls agree, so look at lower levels: dmesg for Xid errors, nvidia-smi for a lost "
        "GPU, NCCL_DEBUG=INFO for the link. On a GPU, a kernel that was launched before the "
        "collective may not end.",
    ),
    "no_dump": (
        "The last lines of torchrun show the exit code of the process: -9 means that it was "
        "killed, often for lack of memory (see dmesg). A process on another host writes its dump "
        "to the out_dir on that host: copy all dumps into one folder.",
    ),
}


@dataclass(frozen=True)
class RankGroup:
    """Ranks with the same state, last finished call, time and call site."""

    ranks: str
    now: str
    finished: str
    at: str
    site: str


RANKS = [
    Column("ranks", "ranks", "text", True),
    Column("state", "now", "text", True),
    Column("last finished", "finished", "code", True),
    Column("entered at", "at", "text", True),
    Column("from", "site", "code", True),
]
VARIANTS = [
    Column("ranks", lambda variant: ranks_text(variant.ranks), "text", True),
    Column("call", lambda variant: variant.call.name, "text", True),
    Column("sizes and types", lambda variant: shape(variant.call), "code", True),
    Column("from", lambda variant: site(variant.call), "code", True),
]


def hang_document(hang: Hang, name: str) -> Document:
    """One screen: the collective, the ranks in it, and what the others did last."""
    first = hang.stuck[0] if hang.stuck else None
    blocks: list[Block] = [Finding("note", note) for note in hang.notes]
    if first:
        blocks += [Facts(facts(first)), *mismatch_table(first)]
    blocks.append(ranks_table(hang, first))
    blocks.append(Bullets("Where the ranks were", whereabouts(hang, first)))
    if len(hang.stuck) > 1:
        also = [sentence(stuck) for stuck in hang.stuck[1:]]
        blocks.append(Bullets("These wait too, perhaps because of it", also))
    if first and hang.answer == "hang":
        blocks.append(Bullets("What next", list(ADVICE[first.why])))
    verdict = Verdict(headline(hang), TONES[hang.answer])
    return Document(f"Hang: {name}", [], [verdict], [Section("hang", "The collective", blocks)])


def whereabouts(hang: Hang, first: Stuck | None) -> list[str]:
    """Lines with errors and with the stacks of missing ranks; equal ones are joined in one line."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank in hang.ranks:
        missing = first is not None and rank.rank in first.absent
        if rank.error:
            ranks_by_text.setdefault(f"ended by {rank.error}", []).append(rank.rank)
        elif missing and rank.stack:
            process = f"pid {rank.pid} on {rank.host}"
            words = f"({process}) at {', '.join(rank.stack[:MOST_FRAMES])}"
            ranks_by_text.setdefault(words, []).append(rank.rank)
    lines = [f"{ranks_text(ranks)} {words}" for words, ranks in ranks_by_text.items()]
    return lines[:MOST_SAID]


def headline(hang: Hang) -> str:
    lost = f"; {ranks_text(hang.no_dump)} left no dump: {LOST}" if hang.no_dump else ""
    if hang.answer == "error":
        died = min((rank for rank in hang.ranks if rank.own_error), key=lambda r: r.dumped_ns)
        where = f", at {died.stack[0]}" if died.stack else ""
        return f"rank {died.rank} ended with an error: {died.error}{where}"
    if not hang.stuck:
        return f"nothing hangs: every collective that was entered has finished{lost}"
    first = hang.stuck[0]
    if hang.answer == "moment":
        waited = f"{title(first)} has waited {first.waited_s or 0:.1f} s"
        least = f"less than {HANG_S:.0f} s is normal in a healthy run"
        return f"no hang so far: {waited}, and {least}; look again in a minute{lost}"
    return sentence(first) + ("" if first.no_dump else lost)


def sentence(stuck: Stuck) -> str:
    """A sentence that says what is wrong with a stuck collective."""
    lost = f"{ranks_text(stuck.no_dump)} left no dump: {LOST}" if stuck.no_dump else ""
    if stuck.why == "mismatch":
        calls = [
            f"{ranks_text(v.ranks)} {'calls' if len(v.ranks) == 1 else 'call'} {v.call.name} of "
            f"{shape(v.call)}"
            for v in stuck.variants[:3]
        ]
        more = f", and {len(stuck.variants) - 3} more kinds" if len(stuck.variants) > 3 else ""
        words = f"the ranks disagree at collective {stuck.sequence} of group {stuck.group}: "
        return words + ", ".join(calls) + more
    begin = f"{title(stuck)} hangs: "
    if stuck.waiting:
        begin += f"{ranks_text(stuck.waiting)} {has(stuck.waiting)} waited in it{since(stuck)}"
    if stuck.why == "entered":
        return f"{begin}; all known ranks are in it, with the same sizes, and it does not finish"
    parts = [begin] if stuck.waiting else [begin.removesuffix(": ")]
    if stuck.absent:
        parts.append(f"{ranks_text(stuck.absent)} {has(stuck.absent)} not entered it")
    return ", ".join([*parts, *filter(None, [lost])])


def facts(stuck: Stuck) -> list[tuple[str, str]]:
    pairs = [("collective", title(stuck))]
    if stuck.why != "mismatch" and stuck.variants:
        call = stuck.variants[0].call
        pairs.append(("sizes and types", shape(call)))
        pairs += [
            ("called from" if i == 0 else "", f) for i, f in enumerate(call.stack[:MOST_FRAMES])
        ]
    if stuck.waited_s is not None:
        given_up = ", then aborted by torch" if stuck.timed_out else ""
        pairs.append(("waited", f"{stuck.waited_s:,.1f} s{given_up}"))
    if stuck.timeout_s:
        pairs.append(("timeout", f"{stuck.timeout_s:,.0f} s"))
    return pairs


def mismatch_table(stuck: Stuck) -> list[Block]:
    """The table of the ranks' calls where these differ, else nothing."""
    if stuck.why != "mismatch":
        return []
    note = f"At number {stuck.sequence} of group {stuck.group}."
    rows: Sequence[Variant] = stuck.variants
    return [Table("variants", "The calls that do not match", note, VARIANTS, rows)]


def ranks_table(hang: Hang, first: Stuck | None) -> Table:
    """The table of ranks. Those of which the same is known share a row; the rarest come first."""
    rows = sorted(
        (state(rank, first), *call_cells(rank.last_finished), rank.rank) for rank in hang.ranks
    )
    groups = []
    for (now, finished, at, place), same in groupby(rows, lambda row: row[:4]):
        ranks = [row[4] for row in same]
        groups.append(
            (len(ranks), RankGroup(ranks_text(ranks, word=False), now, finished, at, place))
        )
    lines = [row for _, row in sorted(groups, key=lambda pair: pair[0])]
    if hang.no_dump:
        missing = ranks_text(hang.no_dump, word=False)
        lines.insert(0, RankGroup(missing, "left no dump", ABSENT, ABSENT, ABSENT))
    return Table(
        "ranks",
        "What each rank did last",
        "Times are UTC, by the clock of each host.",
        RANKS,
        lines,
    )


def state(rank: Rank, first: Stuck | None) -> str:
    last = rank.last_entered
    waits = f"waits in {last.name} {last.sequence}" if last and not last.finished else ""
    if first and rank.rank in first.absent:
        return ", ".join(filter(None, ["not in it", waits]))
    return waits or "in none"


def call_cells(call: Call | None) -> tuple[str, str, str]:
    """Cells for a call: name and number, time of the day to the second, call site."""
    if call is None:
        return ABSENT, ABSENT, ABSENT
    when = datetime.fromtimestamp(call.entered_ns // 10**9, UTC)
    return f"{call.name} {call.sequence}", f"{when:%H:%M:%S}", site(call).partition(" in ")[0]


def title(stuck: Stuck) -> str:
    name = stuck.variants[0].call.name if stuck.variants else "collective"
    return f"{name} {stuck.sequence} of group {stuck.group}"


def shape(call: Call) -> str:
    """Input sizes, output sizes where they differ, and types, as in "[4, 8] to [8, 8] Float"."""
    text = sizes(call.input_sizes)
    if call.output_sizes != call.input_sizes:
        text += f" to {sizes(call.output_sizes)}"
    return " ".join([text, *dict.fromkeys(call.dtypes)])


def sizes(tensors: list[list[int]]) -> str:
    if len(tensors) > 2:
        return f"{tensors[0]} and {len(tensors) - 1} more"
    return ", ".join(map(str, tensors)) or "nothing"


def site(call: Call) -> str:
    return call.stack[0] if call.stack else "no stack recorded"


def since(stuck: Stuck) -> str:
    return f" for {stuck.waited_s:,.1f} s" if stuck.waited_s is not None else ""


def has(ranks: list[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def ranks_text(ranks: list[int], word: bool = True) -> str:
    """The ranks as text, runs shortened, as in "ranks 0, 2-5"; without `word` the numbers alone."""
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0])
    ]
    numbers = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}" if word else numbers
