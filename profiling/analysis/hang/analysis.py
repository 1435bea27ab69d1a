"""Search of the dumps of all ranks for the collective that hangs, and the ranks responsible."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profiling.analysis.hang.group import GroupOfRanks
from profiling.analysis.hang.hang_records import Answer, Call, Hang, Rank, Stuck
from profiling.shared.run_files import HOSTS_GROUP
from profiling.timeline.flight_dump import Dump, find, read

OF_ALL = ("default_pg", HOSTS_GROUP)  # descriptions of groups of all ranks: torch's, the trainer's
SKEW_NS = 1_000_000_000  # largest difference assumed between the clocks of hosts
# wait from which on a run counts as hanging: ranks of a healthy run wait for each other too, and
# the host runs ahead of its GPU
HANG_S = 30.0


def read_hang(places: Sequence[Path]) -> Hang:
    """Read the dumps at `places` and analyse them.

    A rank that was killed may have left half a dump: it is left out with a note, and the rest is
    read. Raises ValueError naming a file where none is a dump.
    """
    paths, dumps, left_out = find(places), list[Dump](), list[str]()
    for rank, path in paths.items():
        try:
            dumps.append(read(path, rank))
        except ValueError as error:
            left_out.append(str(error))
    if not dumps:
        raise ValueError(left_out[0])
    hang = hang_of(dumps, max(paths) + 1 if left_out else 0)
    return replace(hang, notes=[*(f"left out: {error}" for error in left_out), *hang.notes])


def hang_of(dumps: list[Dump], least: int = 0) -> Hang:
    """Analyse `dumps`, ordered by rank, of a run of at least `least` ranks.

    Dumps of an earlier moment than the others are left out, with a note.
    """
    world = max(world_size(dumps) or 0, least) or None
    groups = groups_of(dumps, world)
    if old := {rank for group in groups for rank in group.outdated_ranks(SKEW_NS)}:
        rest = hang_of([dump for dump in dumps if dump.rank not in old], dumps[-1].rank + 1)
        whose = f"rank {', '.join(map(str, sorted(old)))}: the dump was written earlier"
        note = f"{whose} and is left out: the other ranks have finished more collectives since then"
        return replace(rest, notes=[note, *rest.notes])
    stuck = first_to_look_at([collective for group in groups if (collective := group.find_stuck())])
    known = {dump.rank for dump in dumps}
    no_dump = [rank for rank in range(world or 0) if rank not in known]
    ranks = [rank_of(dump, groups) for dump in dumps]
    return Hang(answer(stuck, ranks), stuck, ranks, world, no_dump, notes(dumps))


def world_size(dumps: list[Dump]) -> int | None:
    """World size by the trainer's notes or torch's list of group members; None: unknown."""
    sizes = [dump.note.world_size for dump in dumps if dump.note]
    sizes += [len(members) for dump in dumps for members in dump.members.values()]
    return max(sizes, default=0) or None


def groups_of(dumps: list[Dump], world: int | None) -> list[GroupOfRanks]:
    """Process groups in which some rank called a collective.

    Groups with the same name but different members are different groups.
    """
    ranks: dict[tuple[tuple[str, str], tuple[int, ...] | None], list[Dump]] = {}
    for dump in dumps:
        for name in dump.groups:
            ranks.setdefault((name, members_of(dump, name, world)), []).append(dump)
    groups = []
    for (name, members), called in ranks.items():
        inside = [d for d in dumps if d.rank in members] if members else called
        groups.append(GroupOfRanks(name, inside, members))
    return groups


def members_of(dump: Dump, name: tuple[str, str], world: int | None) -> tuple[int, ...] | None:
    """Ranks in the group of that (name, description); None where the dump does not list them."""
    if name[1] in OF_ALL and world:
        return tuple(range(world))
    return dump.members.get(name[0])


def first_to_look_at(stuck: list[Stuck]) -> list[Stuck]:
    """Sort the collectives that do not end: the one to look at first comes first.

    Mismatches lead. A collective whose missing ranks wait in another one comes after that one.
    Among the rest the longest wait comes first.
    """
    waiting = [set(collective.waiting) for collective in stuck]

    def order(item: tuple[int, Stuck]) -> tuple[bool, bool, float]:
        index, collective = item
        others = set().union(*waiting[:index], *waiting[index + 1 :])
        held_up = not others.isdisjoint(collective.absent)
        return collective.why != "mismatch", held_up, -(collective.waited_s or 0)

    return [collective for _, collective in sorted(enumerate(stuck), key=order)]


def answer(stuck: list[Stuck], ranks: list[Rank]) -> Answer:
    """Decide between hang, error, moment and none; records.Answer explains them."""
    if any(rank.own_error for rank in ranks):
        return "error"
    if not stuck:
        return "none"
    for_good = any(
        collective.timed_out
        or (collective.waited_s or 0) >= min(HANG_S, collective.timeout_s or HANG_S)
        for collective in stuck
    )
    return "hang" if for_good else "moment"


def rank_of(dump: Dump, groups: list[GroupOfRanks]) -> Rank:
    """Record of one rank, with its last call and its last finished call over all its groups."""
    entered: list[Call] = []
    finished: list[Call] = []
    for group in groups:
        index = next((i for i, d in enumerate(group.dumps) if d is dump), None)
        calls = group.calls[index] if index is not None else None
        if index is None or calls is None:
            continue
        entered.append(group.call(index, int(calls.sequence[-1])))
        done = calls.sequence[calls.sequence <= calls.finished_to]
        if done.size:
            finished.append(group.call(index, int(done[-1])))
    note = dump.note
    return Rank(
        dump.rank,
        dump.file.name,
        dump.dumped_ns,
        note.host if note else None,
        note.pid if note else None,
        note.error if note else None,
        bool(note and note.error and not note.in_collective),
        note.stack if note else None,
        max(finished, key=lambda call: call.entered_ns, default=None),
        max(entered, key=lambda call: call.entered_ns, default=None),
    )


def notes(dumps: list[Dump]) -> list[str]:
    """Notes on properties of the dumps that may mislead."""
    lines = []
    if sent := sum(dump.point_to_point for dump in dumps):
        lines.append(f"{sent} sends and receives are left out, because they involve only two ranks")
    if empty := [dump.rank for dump in dumps if not dump.groups]:
        lines.append(f"no collective was recorded by rank {', '.join(map(str, empty))}")
    times = [dump.dumped_ns for dump in dumps]
    if (apart_s := (max(times) - min(times)) / 1e9) > HANG_S:
        lines.append(f"the dumps are {apart_s:,.0f} s apart, so they may be from different runs")
    return lines
