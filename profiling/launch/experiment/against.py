"""The other side of `ab --against WHAT -- COMMAND`: a commit's worktree, or a kept baseline.

Called by profiling.verbs.ab.
"""

from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from profiling.analysis.difference.baseline import Sitting, conclude_against, newest_of
from profiling.analysis.difference.comparison_records import COMMAND, Experiment, Factor
from profiling.launch import git
from profiling.launch.experiment import baselines, commands

HELP = (
    "hold one command against itself in a worktree of a commit, in turns (commit:REV), or against "
    "what `baseline save NAME` kept (baseline:NAME)"
)
COMMIT, BASELINE = "commit", "baseline"  # kinds of WHAT
TREE = "tree"  # of the commit, in the experiment's folder while it runs


@dataclass(frozen=True)
class Revision:
    """A commit of the repository that this folder is in."""

    spelled: str
    commit: git.Commit
    root: Path

    def plan(self, words: list[str], steps: int | None, warm_up: int | None) -> Experiment:
        short = self.commit.short
        is_hash = self.commit.hash.startswith(self.spelled)
        name = short if is_hash else f"{self.spelled} {short}"
        return plan_places(words, self.root, steps, warm_up, [name, "this folder"])


@dataclass(frozen=True)
class Baseline:
    alike: list[Sitting]

    def plan(self, words: list[str], steps: int | None, warm_up: int | None) -> Experiment:
        return baselines.plan_against(self.alike, words, steps, warm_up)

    def conclude(self, experiment: Experiment, equal_within_percent: float) -> Experiment:
        base = newest_of(self.alike)
        return conclude_against(experiment, base, self.alike, equal_within_percent)


def word(typed: str) -> tuple[str, str]:
    """Type of the flag: (kind, name)."""
    kind, _, name = typed.partition(":")
    if kind not in (COMMIT, BASELINE) or not name:
        raise ArgumentTypeError(f"{typed}: give commit:REV or baseline:NAME")
    return kind, name


def opened(asked: tuple[str, str], folder: Path) -> Revision | Baseline:
    """The side that the flag names. Raises ValueError if there is no such commit or baseline."""
    kind, name = asked
    if kind == COMMIT:
        root = git.root_of(Path.cwd())
        return Revision(name, git.commit_of(root, name), root)
    return Baseline(baselines.alike_here(baselines.read_sittings(folder, [name]), name))


@contextmanager
def places_of(side: Revision | Baseline | None, folder: Path) -> Iterator[commands.Places]:
    """The folders that both sides run in, within the block."""
    if not isinstance(side, Revision):
        yield commands.HERE
        return
    with git.worktree(side.root, side.commit, folder / TREE) as tree:
        yield git.same_folder(side.root, tree), None


def plan_places(
    words: list[str],
    root: Path,
    steps: int | None,
    warm_up: int | None,
    labels: list[str],
) -> Experiment:
    """The experiment of one command in two checkouts of the repository at `root`.

    Raises as commands.plan_commands does, and for a command with the whole path of a file
    that git knows: it would run the same file on both sides.
    """
    for typed in words:
        if typed.startswith(f"{root}/") and git.git(root, "ls-files", "--", typed):
            raise ValueError(f"{typed}: is the same file on both sides; name it relative")
    both = commands.plan_commands(
        [*words, commands.SEPARATOR, *words], steps, warm_up or commands.WARM_UP
    )
    return replace(both, factor=Factor(COMMAND, both.factor.values, labels))
