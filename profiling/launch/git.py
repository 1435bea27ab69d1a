"""Git repositories: commits, their order, and worktrees. Called by what compares commits."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cli.plain import without_controls

OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # git sets them where a hook calls us
FORMAT = ("--format=%H%x00%cd%x00%s", "--date=format-local:%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Commit:
    hash: str
    when: str  # ISO 8601, in UTC
    subject: str

    @property
    def short(self) -> str:
        return self.hash[:10]


def git(folder: Path, *words: str) -> str:
    """Output of git in the folder. Raises ValueError with the last line of what it complains of."""
    try:
        command = ["git", "-C", str(folder), *words]
        inherited = {name: value for name, value in os.environ.items() if name not in OF_A_HOOK}
        environ = inherited | {"TZ": "UTC"}
        done = subprocess.run(command, capture_output=True, text=True, env=environ)
    except OSError as error:
        raise ValueError(f"git cannot be started: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with exit code {done.returncode}"]
        raise ValueError(f"git {words[0]}: {said[-1].removeprefix('fatal: ')}")
    return done.stdout.strip()


def root_of(folder: Path) -> Path:
    """The root of the repository that the folder is in. Raises ValueError if it is in none."""
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel"))
    except ValueError as error:
        raise ValueError(f"{folder.resolve()}: is in no git repository ({error})") from error


def commit_of(root: Path, revision: str) -> Commit:
    """The commit that a revision names. Raises ValueError if it names none."""
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        found = git(root, *words)
    except ValueError as error:
        raise ValueError(f"{revision}: no such commit in {root}") from error
    return commit_in(git(root, "show", "--no-patch", *FORMAT, found))


def commit_in(line: str) -> Commit:
    """The commit in a line of FORMAT."""
    return Commit(*map(without_controls, line.split("\0")))


def commits_after(root: Path, good: Commit, bad: Commit) -> list[Commit]:
    """The commits behind `good` up to `bad`, along first parents, oldest first.

    Raises ValueError if `good` is no ancestor of `bad`, or the same commit.
    """
    if good.hash == bad.hash:
        raise ValueError(f"GOOD and BAD are both {good.short}; give two commits")
    span = f"{good.hash}..{bad.hash}"
    behind = set(git(root, "rev-list", "--ancestry-path", span).split())
    if bad.hash not in behind:
        raise ValueError(f"{good.short} is no ancestor of {bad.short}; give GOOD, then BAD")
    lines = git(root, "log", "--first-parent", "--reverse", *FORMAT, span).split("\n")
    commits = [commit for commit in map(commit_in, lines) if commit.hash in behind]
    return commits


def is_dirty(root: Path) -> bool:
    """Whether files that git knows differ from the commit."""
    return bool(git(root, "status", "--porcelain", "--untracked-files=no"))


@contextmanager
def worktree(root: Path, commit: Commit, place: Path) -> Iterator[Path]:
    """Check a commit out at `place` within the block; what was left there before is removed."""
    place = place.resolve()
    remove_worktree(root, place)
    git(root, "worktree", "add", "--detach", "--force", str(place), commit.hash)
    try:
        yield place
    finally:
        remove_worktree(root, place)


def remove_worktree(root: Path, place: Path) -> None:
    if place.exists():
        with suppress(ValueError):  # one that git was still making when it was killed
            git(root, "worktree", "remove", "--force", "--force", str(place))
        shutil.rmtree(place, ignore_errors=True)


def same_folder(root: Path, tree: Path) -> Path:
    """The folder of a worktree that is this process's folder in the repository at `root`.

    Raises ValueError if the commit does not have it.
    """
    here = tree / Path.cwd().resolve().relative_to(root.resolve())
    if not here.is_dir():
        raise ValueError(f"{here.relative_to(tree)}: the commit has no such folder")
    return here
