"""Finds the commit that made a command slower or faster: times commits in git worktrees, each in
turns with GOOD, and names the first one that is on BAD's side, with an interval.

  GOOD BAD         revisions of the repository that this folder is in; GOOD is an ancestor of BAD
  -- COMMAND       any training program in Python, started in this folder of each commit's worktree

{flags}

examples
  python -m profiling bisect v1.4 HEAD --steps 200 -- python train_mine.py
  python -m profiling bisect HEAD~32 HEAD --min-effect 2 --capture -- python train_mine.py

First BAD is held against GOOD: if they do not differ by --min-effect, that is the answer. Then each
visit times a commit and GOOD, as fresh processes in turns: the commit in the middle of those that
may have done it. It takes a quarter more processes as long as the commit's side is not 99 % sure by
all visits so far, up to --most-repeats; what cannot be told then counts as far as it is known, and
what does not run is skipped. The commit that is left is held against the one before it, and named
only if that shows the difference again. 32 commits take 7 visits.

Commits are those along first parents; a merge is one commit. A worktree has the files that git
knows: name data that git ignores by its whole path. This folder and its changes stay as they are.
A bisection that was stopped or killed goes on with the same command; DIR/bisect.json is its state.

exit code: 0 if a commit is named; 3 if GOOD and BAD do not differ or no single commit can be told;
2 for a mistake, or if GOOD or BAD does not run; 127 for a command that is not found; 130 after
Ctrl-C, 143 after SIGTERM
"""

import shlex
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from cli.interrupts import STOPS, exit_code
from cli.lock import Lock, refuse_files_of_others
from cli.parser import Parser, at_dashes, flag, within
from cli.program import as_called
from profiling.analysis.difference.comparison_records import Experiment
from profiling.launch import git
from profiling.launch.bisect.search import Bisection
from profiling.launch.bisect.visits import STATE, Asked, bisect, open_bisection, visit_folder
from profiling.launch.experiment import commands
from profiling.launch.experiment.plan import FEWEST_TIMED
from profiling.launch.experiment.processes import RESULTS, say
from profiling.report.comparison.document import experiment_document
from profiling.report.renderers.page import page
from profiling.shared.json_records import read_json, to_json
from profiling.shared.own_program import refuse_without_dashes
from profiling.verbs.gate import CANNOT_TELL
from profiling.verbs.results import new_file, put

OUT = Path("out-bisect")
OF_UNENDED = {"visits", "trees"}  # what a bisection has before its first visit has ended


def main(argv: list[str]) -> int:
    """Bisect; return the exit code. Raises ValueError for what the user can mend."""
    flags = parse(argv)
    asked = request_of(flags)
    refuse_files_of_others(asked.folder, f"--out {asked.folder}", STATE, OF_UNENDED, "bisection")
    try:
        open_bisection(asked)  # mistakes end here, before a folder is made
    except commands.NotStarted as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return error.status
    between = len(asked.commits) - 1
    say(f"{between} commits after {asked.commits[0].short}, up to {asked.commits[-1].short}")
    say(f"folder  {asked.folder}")
    with Lock(asked.folder, f"--out {asked.folder}"):
        try:
            state = open_bisection(asked)
            if state.visits:
                say(f"{len(state.visits)} visits are already done")
            state = bisect(asked, state)
        except STOPS as stopped:
            print(f"\nstopped; the same command goes on in {asked.folder}")
            return exit_code(stopped)
    return deliver(flags, asked, state, argv)


def parse(argv: list[str]) -> Namespace:
    """Parse the command line; the flags have `good`, `bad` and `words`."""
    usage = "python -m profiling bisect GOOD BAD [FLAGS] -- COMMAND"
    parser = Parser("bisect", __doc__, usage=usage)
    parser.add_argument("good", metavar="GOOD", help="a revision before the change")
    parser.add_argument("bad", metavar="BAD", help="a revision after it")
    add = partial(flag, parser)
    effect = "the smallest difference to look for (default %(default)g)"
    add("--min-effect PERCENT", effect, within(float, 0.1, 100), default=1.0)
    add("--repeats N", "processes of each commit at first (default 4)", within(int, 2), default=4)
    most = "processes of each commit in a visit (default 80)"
    add("--most-repeats N", most, within(int, 2), default=80)
    timed = "end each process after so many timed steps (default: at its own end)"
    add("--steps N", timed, within(int, FEWEST_TIMED))
    untimed = "steps that are not timed (default %(default)s)"
    add("--warm-up N", untimed, within(int, 1), default=commands.WARM_UP)
    add("--capture", "at the end capture the named commit and its parent, and say what changed")
    out = f"folder of the bisection, which goes on there (default {OUT}/GOOD-BAD)"
    add("--out DIR", out, Path)
    add("--json FILE", "the result and all visits as JSON", new_file(".json"))
    before, command = at_dashes(argv)
    if command is None:
        refuse_without_dashes("bisect", argv, parser.parse_known_args(argv)[1])
    flags = parser.parse_args(before)
    if not command:
        raise ValueError(f"no command: {usage}")
    flags.words = command
    if flags.most_repeats < flags.repeats:
        raise ValueError(f"--most-repeats {flags.most_repeats}: is less than --repeats")
    return flags


def request_of(flags: Namespace) -> Asked:
    """The bisection that the flags ask for. Raises ValueError for revisions without an answer."""
    root = git.root_of(Path.cwd())
    good, bad = git.commit_of(root, flags.good), git.commit_of(root, flags.bad)
    commits = [good, *git.commits_after(root, good, bad)]
    folder = flags.out or OUT / f"{good.short}-{bad.short}"
    effect = flags.min_effect / 100
    rest = effect, flags.repeats, flags.most_repeats, folder.resolve(), flags.capture
    return Asked(root, commits, flags.words, flags.steps, flags.warm_up, *rest)


def deliver(flags: Namespace, asked: Asked, state: Bisection, argv: list[str]) -> int:
    """Print the answer and what it took, and write what was asked for; return the exit code."""
    processes = sum(each.processes for each in state.visits)
    minutes = sum(each.wall_s for each in state.visits) / 60
    print(f"\n{len(state.visits)} visits, {processes} processes, {minutes:.1f} min")
    print(f"record  {asked.folder / STATE}")
    if flags.json:
        put(flags.json, to_json(state, indent=1))
    if not state.named:
        print(f"\nno commit is named: {state.sentence}")
        return CANNOT_TELL
    named = next(each for each in asked.commits if each.hash == state.named)
    folder = visit_folder(asked, len(state.visits) - 1, named)
    experiment = read_json(folder / RESULTS, Experiment)
    put(folder / "report.html", page(experiment_document(experiment), as_json=to_json(experiment)))
    print(f"page    {folder / 'report.html'}")
    print(f"next    git show {named.short}")
    if not flags.capture:
        again = shlex.join(["--capture", *argv])
        print(as_called(f"next    python -m profiling bisect {again}"))
    print(f"\n{named.short} {named.subject}\n{state.sentence}")
    return 0
