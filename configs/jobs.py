"""The jobs of one command line, one after the other: all checked before the first trains.

A job of a sweep that fails stops no other: they run, and the end says which failed, and why.
Called by configs.command_line.
"""

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from cli.errors import note_once, one_line
from configs.backends import leaves_work_to_the_compiler
from configs.schema import Config

Train = Callable[[Config], None]


def compile_alike(configs: list[Config]) -> str | None:
    """Set compile=true in all jobs that leave it null, if one of these has work for the compiler.

    Slow and flash attention are then compared with all else equal. Other levels than speed=fast
    decide it themselves. Returns that job's key, as KEY=VALUE, or None if nothing was set.
    """
    if any(config.speed != "fast" for config in configs):
        return None
    undecided = [c for c in configs if c.compile is None and not c.profile.shows_layers]
    works = (leaves_work_to_the_compiler(c.attention, c.activation) for c in undecided)
    reason = next(filter(None, works), None)
    for config in undecided if reason else []:
        config.compile = True
    return reason


@dataclass
class Jobs:
    configs: list[Config]  # checked, one for each job
    swept: bool  # under -m: each job is announced
    failed: list[str] = field(default_factory=list)  # a line about each failed job

    def __post_init__(self) -> None:
        if self.swept and (reason := compile_alike(self.configs)):
            note_once(f"compile=true in all jobs, as {reason} has something to compile")

    def check(self, check: Train) -> None:
        """Call `check` with each configuration of a sweep; its ValueError then names the job.

        A single run checks the same when it begins.
        """
        for number, config in enumerate(self.configs if self.swept else [], start=1):
            try:
                check(config)
            except ValueError as error:
                raise ValueError(f"{self.name(number, config)}: {error}") from error

    def submit(self, launcher: str) -> None:
        """Print the jobs that are about to run in other processes, and where these print."""
        for number, config in enumerate(self.configs, start=1):
            say(self.name(number, config))
        say(
            f"{launcher}: the output of the jobs is in .submitit/ in hydra.sweep.dir, which is "
            "out_dir"
        )

    def run(self, number: int, config: Config, train: Train) -> None:
        """Run job `number`, from 1. In a sweep its failure is printed and kept for `end`.

        Under torchrun it is raised and ends the rest: the ranks are no longer in step.
        """
        config.compile = self.configs[number - 1].compile
        if not self.swept:
            train(config)
            return
        say(f"job {number} of {len(self.configs)}: {config.out_dir}")
        try:
            train(config)
        except (Exception, SystemExit) as error:
            if "RANK" in os.environ or is_stop(error):
                raise
            if not isinstance(error, (ValueError, SystemExit)):
                traceback.print_exc()
            reason = one_line(str(error)).removeprefix("train.py: ") or type(error).__name__
            if isinstance(error, SystemExit) and not isinstance(error.code, str):
                reason = f"exit code {error.code}; see the last line of the job"
            self.failed.append(f"{self.name(number, config)}: {reason}")
            say(self.failed[-1])

    def name(self, number: int, config: Config) -> str:
        return f"job {number} of {len(self.configs)} ({config.out_dir})"

    def end(self) -> None:
        """Raise SystemExit if a job failed, after a list of those on stderr."""
        if self.failed:
            lines = [
                f"train.py: {len(self.failed)} of {len(self.configs)} jobs failed:",
                *self.failed,
            ]
            print("\n  ".join(lines), file=sys.stderr)
            raise SystemExit(1)


def is_stop(error: BaseException) -> bool:
    """Whether a job ended with exit code 0, or was stopped by Ctrl-C, SIGTERM or SIGHUP."""
    code = error.code if isinstance(error, SystemExit) else 1
    return code in (None, 0) or (isinstance(code, int) and code > 128)


def say(line: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(line, flush=True)
