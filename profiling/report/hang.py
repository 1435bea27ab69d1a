"""Where a run hangs, as a Document. Called by profiling.verbs.hang."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from profiling.analysis.hang.analysis import HANG_S
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
MOST_SAID = 5  # ranks with something of their own
TONES: dict[str, Tone] = {"hang": "bad", "error": "bad", "moment": "note", "none": "good"}
LOST = "it died, or could not be reached"
ADVICE = {
    "absent": (
        "What a rank that is alive does now: py-spy dump --pid PID, on its host.",
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
    at: str
    site: str


RANKS = [
    Column("ranks", "ranks", "text", True),
    Column("state", "now", "text", True),
    Column("last that ended", "finished", "code", True),
    Column("entered at", "at", "text", True),
    Column("from", "site", "code", True),
]
VARIANTS = [
    Column("ranks", lambda variant: spelled(variant.ranks), "text", True),
    Column("call", lambda variant: variant.call.name, "text", True),
    Column("sizes and types", lambda variant: shape(variant.call), "code", True),
    Column("from", lambda variant: site(variant.call), "code", True),
]


def hang_document(hang: Hang, name: str) -> Document:
    """One screen: the collective, who is in it, what the others did last."""
    first = hang.stuck[0] if hang.stuck else None
    blocks: list[Block] = [Finding("note", note) for note in hang.notes]
    if first:
        blocks += [Facts(facts(first)), *parted(first)]
    blocks.append(ranks_table(hang, first))
    blocks.append(Bullets("Where they were", whereabouts(hang, first)))
    if len(hang.stuck) > 1:
        also = [sentence(found) for found in hang.stuck[1:]]
        blocks.append(Bullets("These wait, too, maybe because of it", also))
    if first and hang.answer == "hang":
        blocks.append(Bullets("What next", list(ADVICE[first.why])))
    verdict = Verdict(headline(hang), TONES[hang.answer])
    return Document(f"Hang: {name}", [], [verdict], [Section("hang", "The collective", blocks)])


def whereabouts(hang: Hang, first: Stuck | None) -> list[str]:
    """Errors, and the stacks of those that are missing; ranks that say the same say it once."""
    said: dict[str, list[int]] = {}
    for rank in hang.ranks:
        missing = first is not None and rank.rank in first.absent
        if rank.error:
            said.setdefault(f"ended by {rank.error}", []).append(rank.rank)
        elif missing and rank.stack:
            process = f"pid {rank.pid} on {rank.host}"
            words = f"({process}) at {', '.join(rank.stack[:MOST_FRAMES])}"
            said.setdefault(words, []).append(rank.rank)
    return [f"{spelled(ranks)} {words}" for words, ranks in list(said.items())[:MOST_SAID]]


def headline(hang: Hang) -> str:
    lost = f"; {spelled(hang.no_dump)} left no dump: {LOST}" if hang.no_dump else ""
    if hang.answer == "error":
        died = min((rank for rank in hang.ranks if rank.own_error), key=lambda r: r.dumped_ns)
        where = f", at {died.stack[0]}" if died.stack else ""
        return f"rank {died.rank} was ended by an error of its own: {died.error}{where}"
    if not hang.stuck:
        return f"nothing hangs: every collective that was entered has ended{lost}"
    first = hang.stuck[0]
    if hang.answer == "moment":
        waited = f"{title(first)} has waited {first.waited_s or 0:.1f} s"
        least = f"less than {HANG_S:.0f} s is nothing strange in a run that goes on"
        return f"no hang so far: {waited}, and {least}; look again in a minute{lost}"
    return sentence(first) + ("" if first.no_dump else lost)


def sentence(found: Stuck) -> str:
    """What is wrong with it."""
    lost = f"{spelled(found.no_dump)} left no dump: {LOST}" if found.no_dump else ""
    if found.why == "mismatch":
        calls = [
            f"{spelled(v.ranks)} {'calls' if len(v.ranks) == 1 else 'call'} {v.call.name} of "
            f"{shape(v.call)}"
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
        pairs += [
            ("called from" if i == 0 else "", f) for i, f in enumerate(call.stack[:MOST_FRAMES])
        ]
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
    """Ranks of which the same is known share a row; the rarest come first."""
    rows = sorted((state(rank, first), *told(rank.last_finished), rank.rank) for rank in hang.ranks)
    alike = []
    for (now, finished, at, place), same in groupby(rows, lambda row: row[:4]):
        ranks = [row[4] for row in same]
        alike.append((len(ranks), Alike(spelled(ranks, word=False), now, finished, at, place)))
    shown = [row for _, row in sorted(alike, key=lambda pair: pair[0])]
    if hang.no_dump:
        missing = spelled(hang.no_dump, word=False)
        shown.insert(0, Alike(missing, "left no dump", ABSENT, ABSENT, ABSENT))
    return Table("ranks", "What each rank did last", "Times are UTC, by its clock.", RANKS, shown)


def state(rank: Rank, first: Stuck | None) -> str:
    last = rank.last_entered
    waits = f"waits in {last.name} {last.sequence}" if last and not last.finished else ""
    if first and rank.rank in first.absent:
        return ", ".join(filter(None, ["not in it", waits]))
    return waits or "in none"


def told(call: Call | None) -> tuple[str, str, str]:
    """Name and number, time of the day to the second, call site."""
    if call is None:
        return ABSENT, ABSENT, ABSENT
    when = datetime.fromtimestamp(call.entered_ns // 10**9, UTC)
    return f"{call.name} {call.sequence}", f"{when:%H:%M:%S}", site(call).partition(" in ")[0]


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
