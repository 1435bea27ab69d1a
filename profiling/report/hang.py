"""Where a run hangs, as a Document. Called by profiling.verbs.hang."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from profiling.analysis.hang.records import Call, Hang, Rank, Stuck, Variant
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
from profiling.units import ABSENT

MOST_FRAMES = 3  # of a stack, on the screen
TONES: dict[str, Tone] = {"hang": "bad", "moment": "note", "none": "good"}
LOST = "it died, or could not be reached"
ADVICE = {
    "absent": (
        "What a rank that is alive does instead: py-spy dump --pid PID, on its host.",
        "Look behind its last call for a branch that the others do not take: on the rank, on its "
        "data, on an error that was caught.",
    ),
    "mismatch": (
        "Compare the two call sites: a branch on the rank, or on what differs between ranks, leads "
        "to one of them. Ranks that skipped a collective are one number behind from there on.",
    ),
    "entered": (
        "The calls agree, so look below them: dmesg for Xid errors, nvidia-smi for a GPU that is "
        "lost, NCCL_DEBUG=INFO for the link. On a GPU a kernel that was launched before the "
        "collective may be what does not end.",
    ),
    "no_dump": (
        "torchrun's last lines have its exit code: -9 is a kill, often for memory (dmesg says so). "
        "On another host its dump lies in that host's out_dir: bring them together.",
    ),
}


@dataclass(frozen=True)
class Alike:
    """Ranks of which the same is known."""

    ranks: str
    now: str
    finished: str
    entered: str


RANKS = [
    Column("ranks", "ranks", "text", True),
    Column("", "now", "text", True),
    Column("last that ended", "finished", "text", True),
    Column("last that was entered", "entered", "text", True),
]
VARIANTS = [
    Column("ranks", lambda variant: spelled(variant.ranks), "text", True),
    Column("call", lambda variant: variant.call.name, "text", True),
    Column("sizes and types", lambda variant: shape(variant.call), "text", True),
    Column("from", lambda variant: site(variant.call), "text", True),
]


def hang_document(hang: Hang, name: str) -> Document:
    """One screen: the collective, who is in it, what the others did last."""
    first = hang.stuck[0] if hang.stuck else None
    blocks: list[Block] = [Verdict(headline(hang), TONES[hang.answer])]
    blocks += [
        Finding("warning", f"{spelled([rank.rank])} ended by an error: {rank.error}")
        for rank in hang.ranks
        if rank.error and first is None
    ]
    blocks += [Finding("note", note) for note in hang.notes]
    if first:
        blocks += [Facts(facts(first)), *parted(first)]
    blocks.append(ranks_table(hang, first))
    if len(hang.stuck) > 1:
        also = [sentence(found) for found in hang.stuck[1:]]
        blocks.append(Bullets("These wait, too, maybe because of it", also))
    if first and hang.answer == "hang":
        blocks.append(Bullets("What next", list(ADVICE[first.why])))
    return Document(f"Hang: {name}", [], blocks[:1], [Section("hang", "Ranks", blocks[1:])])


def headline(hang: Hang) -> str:
    lost = f"; {spelled(hang.no_dump)} left no dump: {LOST}" if hang.no_dump else ""
    if not hang.stuck:
        return f"nothing hangs: every collective that was entered has ended{lost}"
    first = hang.stuck[0]
    if hang.answer == "moment":
        since = f"{first.waited_s or 0:.1f} s"
        return (
            f"nothing hangs so far: {title(first)} waits for {since}, as in a healthy run; look "
            f"again in a minute{lost}"
        )
    return sentence(first) + ("" if first.no_dump else lost)


def sentence(found: Stuck) -> str:
    """What is wrong with it."""
    lost = f"{spelled(found.no_dump)} left no dump: {LOST}" if found.no_dump else ""
    if found.why == "mismatch":
        calls = [
            f"{spelled(v.ranks)} call{'s' if len(v.ranks) == 1 else ''} {v.call.name} of {shape(v.call)}"
            for v in found.variants[:3]
        ]
        more = f", and {len(found.variants) - 3} more kinds" if len(found.variants) > 3 else ""
        words = f"the ranks part at collective {found.sequence} of group {found.group}: "
        return words + ", ".join(calls) + more
    begin = f"{title(found)} hangs: "
    if found.waiting:
        begin += f"{spelled(found.waiting)} {has(found.waiting)} waited in it{since(found)}"
    if found.why == "entered":
        return f"{begin}; all that are known are in it, with the same sizes, and it does not end"
    parts = [begin] if found.waiting else [begin.removesuffix(": ")]
    if found.absent:
        parts.append(f"{spelled(found.absent)} {has(found.absent)} not entered it")
    return ", ".join([*parts, *filter(None, [lost])])


def facts(found: Stuck) -> list[tuple[str, str]]:
    pairs = [("collective", title(found))]
    if found.why != "mismatch" and found.variants:
        call = found.variants[0].call
        pairs.append(("sizes and types", shape(call)))
        pairs += [("called from" if i == 0 else "", f) for i, f in enumerate(call.stack[:MOST_FRAMES])]
    if found.waited_s is not None:
        given_up = ", given up by torch" if found.timed_out else ""
        pairs.append(("waited", f"{found.waited_s:,.1f} s{given_up}"))
    if found.timeout_s:
        pairs.append(("timeout", f"{found.timeout_s:,.0f} s"))
    return pairs


def parted(found: Stuck) -> list[Block]:
    """What the ranks called, where that is not the same."""
    if found.why != "mismatch":
        return []
    note = f"At number {found.sequence} of group {found.group}."
    rows: Sequence[Variant] = found.variants
    return [Table("variants", "The calls that do not fit", note, VARIANTS, rows)]


def ranks_table(hang: Hang, first: Stuck | None) -> Table:
    """Ranks of which the same is known share a row; those with something of their own come first."""
    rows = [
        (state(rank, first), told(rank.last_finished), told(rank.last_entered), rank.rank)
        for rank in hang.ranks
    ]
    alike = [
        Alike(spelled([row[3] for row in same], word=False), *key)
        for key, same in ((key, list(same)) for key, same in groupby(sorted(rows), lambda r: r[:3]))
    ]
    alike.sort(key=lambda row: row.ranks.count(",") + row.ranks.count("-"))
    if hang.no_dump:
        alike.insert(0, Alike(spelled(hang.no_dump, word=False), f"no dump: {LOST}", ABSENT, ABSENT))
    return Table("ranks", "What each rank did last", "Times are UTC, by its clock.", RANKS, alike)


def state(rank: Rank, first: Stuck | None) -> str:
    where = f", pid {rank.pid} on {rank.host}" if rank.pid and rank.host else ""
    words = "outside of collectives"
    if rank.last_entered and not rank.last_entered.finished:
        words = f"waits in {rank.last_entered.name} {rank.last_entered.sequence}"
        where = ""
    if first and rank.rank in first.absent:
        words = f"not in it: {words}" if rank.last_entered else "not in it"
    if rank.error:
        words += f"; ended by {rank.error}"
    return words + (where if first and rank.rank in first.absent else "")


def told(call: Call | None) -> str:
    """Its name and number, when, and from where. Ranks that differ in milliseconds say the same."""
    if call is None:
        return ABSENT
    when = datetime.fromtimestamp(call.entered_ns // 10**9, UTC)
    return f"{call.name} {call.sequence}, {when:%H:%M:%S}, {site(call)}"


def title(found: Stuck) -> str:
    name = found.variants[0].call.name if found.variants else "collective"
    return f"{name} {found.sequence} of group {found.group}"


def shape(call: Call) -> str:
    """[4, 8] Float, and what it makes where that is of another size."""
    spelled_sizes = sizes(call.input_sizes)
    if call.output_sizes != call.input_sizes:
        spelled_sizes += f" to {sizes(call.output_sizes)}"
    return " ".join([spelled_sizes, *dict.fromkeys(call.dtypes)])


def sizes(tensors: list[list[int]]) -> str:
    if len(tensors) > 2:
        return f"{tensors[0]} and {len(tensors) - 1} more"
    return ", ".join(map(str, tensors)) or "nothing"


def site(call: Call) -> str:
    return call.stack[0] if call.stack else "no stack recorded"


def since(found: Stuck) -> str:
    return f" for {found.waited_s:,.1f} s" if found.waited_s is not None else ""


def has(ranks: list[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def spelled(ranks: list[int], word: bool = True) -> str:
    """ranks 0, 2-5"""
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0])
    ]
    numbers = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}" if word else numbers
