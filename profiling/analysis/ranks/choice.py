"""Choice of the ranks to be compared: those of one run and of one window. Called by files."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profiling.analysis.ranks.found import window_of
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.records import Finding
from profiling.timeline.opening import modified_ns

SAME_WINDOW = "capture the same window on each: profile.start and profile.steps"
MOST_NAMED = 8  # ranks in a sentence


@dataclass(frozen=True)
class FileRead:
    """Result of reading one file: its ranks, or one line that says why it has none."""

    path: Path
    ranks: list[ReducedRank]
    error: str | None = None


def choose(read: Sequence[FileRead]) -> tuple[list[ReducedRank], list[Finding]]:
    """Choose ranks of one run and window: (ranks by number, findings on what was left out).

    Taken are the ranks of the world size that most have, that captured the iteration that most
    captured. If one rank has several files, the one with the folder and name pattern of the newest
    file of all is taken, else its newest.
    """
    newest_first = sorted(number_processes(read), key=lambda file: -modified_ns(file.path))
    families = [(file.path.parent, window_of(file.path)) for file in newest_first]
    order = sorted(range(len(families)), key=lambda n: families[n] != families[0])
    ranks = [rank for n in order for rank in newest_first[n].ranks]
    findings = []
    for keep in (keep_one_world, keep_one_window, keep_first_of_each):
        ranks, left = keep(ranks)
        findings += [Finding("warning", f"left out: {why}") for why in left]
    return sorted(ranks, key=lambda rank: rank.rank), findings


def number_processes(read: Sequence[FileRead]) -> list[FileRead]:
    """Number the processes of files without rank numbers on from one file to the next."""
    files, first = [], 0
    for file in read:
        if file.ranks and all(rank.rank_from == "order" for rank in file.ranks):
            ranks = [replace(rank, rank=first + rank.rank) for rank in file.ranks]
            first, file = first + len(ranks), replace(file, ranks=ranks)
        files.append(file)
    return files


def keep_one_world(ranks: list[ReducedRank]) -> tuple[list[ReducedRank], list[str]]:
    """Keep the most common world size, and the ranks that do not know theirs.

    Returns the ranks and the reasons for which others were left out, as the next two do.
    """
    sizes = Counter(rank.world_size for rank in ranks if rank.world_size)
    if len(sizes) < 2:
        return ranks, []
    most = sizes.most_common(1)[0][0]
    other = [rank for rank in ranks if rank.world_size not in (most, None)]
    why = (
        f"{ranks_in_files(other)} had another number of ranks than {most}; there may be two runs "
        "in one folder"
    )
    return [rank for rank in ranks if rank not in other], [why]


def keep_one_window(ranks: list[ReducedRank]) -> tuple[list[ReducedRank], list[str]]:
    """Keep the ranks that captured the iteration that most ranks captured."""
    captured: dict[int, set[int]] = {}
    for rank in ranks:
        for iteration in rank.iterations.tolist():
            captured.setdefault(iteration, set()).add(rank.rank)
    most = max(captured, key=lambda iteration: len(captured[iteration]), default=0)
    kept = [rank for rank in ranks if most in rank.iterations]
    numbers = {rank.rank for rank in kept}
    other = [rank for rank in ranks if most not in rank.iterations and rank.rank not in numbers]
    if not other:
        return kept, []
    window, usual = window_text(other[0]), window_text(kept[0])
    return kept, [
        f"{ranks_in_files(other)} captured {window}, but most ranks captured {usual}; {SAME_WINDOW}"
    ]


def window_text(rank: ReducedRank) -> str:
    first, last = int(rank.iterations[0]), int(rank.iterations[-1])
    name = rank.step_name.strip("# ") if rank.step_name else "step"
    return f"{name} {first}" if first == last else f"{name} {first} to {last}"


def keep_first_of_each(ranks: list[ReducedRank]) -> tuple[list[ReducedRank], list[str]]:
    """Keep the first of the ranks with the same number."""
    kept: dict[int, ReducedRank] = {}
    again = [rank for rank in ranks if kept.setdefault(rank.rank, rank) is not rank]
    if not again:
        return ranks, []
    why = (
        f"{ranks_in_files(again)} because there are newer files of the same ranks, such as "
        f"{kept[again[0].rank].file}"
    )
    return list(kept.values()), [f"{why}; if the folder contains two runs, name the files of one"]


def ranks_in_files(ranks: Sequence[ReducedRank]) -> str:
    """Phrase such as "rank 3 in FILE"."""
    numbers = sorted({rank.rank for rank in ranks})
    if len(ranks) == 1:
        return f"rank {numbers[0]} in {ranks[0].file}"
    return f"ranks {list_numbers(numbers)} in {len(ranks)} files, such as {ranks[0].file},"


def list_numbers(numbers: Iterable[int]) -> str:
    """Enumeration such as "1, 2, 5 and 3 more" that names at most MOST_NAMED numbers."""
    numbers = list(numbers)
    shown = ", ".join(map(str, numbers[:MOST_NAMED]))
    more = len(numbers) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
