"""`python -m profiling VERB ...`: all that is done around a training run, a verb for each task."""

if __name__ == "__main__":
    import os
    import sys

    # the user's folder may have a package cli or configs of its own
    if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]

    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

import sys
from dataclasses import dataclass
from importlib import import_module
from runpy import run_module

from cli.errors import ending, user_errors
from cli.extras import refuse_missing_package
from cli.interrupts import unwind_on_signal
from cli.malloc import keep_freed_memory
from cli.program import NAME, PREFIX, PROGRAMS, as_called

CAPTURES, LAB = "captures and runs", "the lab"


@dataclass(frozen=True)
class Verb:
    """A subcommand: the module of that name in profiling.verbs, whose main(argv) returns the exit
    code."""

    group: str
    purpose: str
    keeps_freed: bool = False  # freed memory is kept: the verb reads long captures and then ends


VERBS = {
    "demo": Verb(CAPTURES, "a report, a comparison, a dashboard of examples; needs no GPU"),
    "run": Verb(CAPTURES, "start a program, or train, and report a window of its steps"),
    "report": Verb(CAPTURES, "where the time goes, and what limits the step", keeps_freed=True),
    "compare": Verb(CAPTURES, "what changed between two captures or runs", keeps_freed=True),
    "ab": Verb(CAPTURES, "two values of a key, or two commands, in turns: is one faster?"),
    "baseline": Verb(CAPTURES, "keep a command's step times, for ab --against baseline:NAME"),
    "history": Verb(CAPTURES, "kept baselines over the commits: table, CSV, page"),
    "bisect": Verb(CAPTURES, "the commit that made a command slower, with an interval"),
    "bench": Verb(CAPTURES, "the table of speeds, compared with another checkout of nanoGPT"),
    "export": Verb(CAPTURES, "a capture for ui.perfetto.dev", keeps_freed=True),
    "log": Verb(CAPTURES, "add the report of a capture to its W&B run"),
    "trigger": Verb(CAPTURES, "open a capture window in a running training"),
    "whatif": Verb(CAPTURES, "what a change would make of a step", keeps_freed=True),
    "scale": Verb(CAPTURES, "what a step would take on more GPUs, from a capture of one"),
    "hang": Verb(CAPTURES, "the collective that ranks hang in, and which ranks are missing"),
    "dashboard": Verb(CAPTURES, "runs side by side: loss, speed, GPU"),
    "home": Verb(CAPTURES, "all runs and captures under a folder, on one page"),
    "mcp": Verb(CAPTURES, "serve captures and runs to agents, over MCP"),
    "scrub": Verb(CAPTURES, "remove environment and folders from a capture"),
    "doctor": Verb(CAPTURES, "check whether this machine can profile, with fixes"),
    "attention": Verb(LAB, "the attention backends side by side"),
    "square": Verb(LAB, "one operation in six ways, from eager to CUDA C++"),
    "kernels": Verb(LAB, "the kernels of kernels=fused, compared with PyTorch's"),
    "device": Verb(LAB, "peak rates of this GPU, measured and nominal"),
    "ncu": Verb(LAB, "single kernels under Nsight Compute: what limits them"),
    "compiled": Verb(LAB, "what torch.compile made: graphs, kernels, sources"),
}

READS_MEMORY = "; report reads memory snapshots, and run --kind memory makes one"
HELP = """\
Makes, checks and reads captures of training runs.

usage: python -m profiling VERB ...       python -m profiling VERB --help

{verbs}

training
{programs}

examples
  python -m profiling demo
  python -m profiling doctor
  python -m profiling run -- python my_train.py --lr=1e-3
  python -m profiling run config/shakespeare_char.yaml attention=flash
  python -m profiling report out-shakespeare-char --html report.html
  python -m profiling compare slow.sqlite flash.sqlite --html comparison.html
  python -m profiling ab config/shakespeare_char.yaml attention=slow,flash
  python -m profiling dashboard out-slow out-flash -o dashboard.html
  python -m profiling whatif nsys.sqlite --no data sync --graphs
  python -m profiling scale out-gpt2-124m --gpus 8,64,1024
  python -m profiling attention --seq 256,4096 --backward --html attention.html
  python -m profiling compiled config/shakespeare_char.yaml attention=flash
"""


def main() -> None:
    """Do what sys.argv says, and exit."""
    try:
        start(*(sys.argv[1:] or ["--help"]))
    except ModuleNotFoundError as error:  # here, where sys.argv still has the verb
        refuse_missing_package(error)
        raise


def start(verb: str, *arguments: str) -> None:
    """Start a verb or one of PROGRAMS."""
    known = verb in VERBS or verb in PROGRAMS
    sys.argv[0] = f"profiling {verb}" if known else "profiling"  # as errors name it
    if verb in PROGRAMS:
        del sys.argv[1]
        run_module(PREFIX + verb, run_name="__main__", alter_sys=True)
        return
    with user_errors():
        if verb in ("-h", "--help"):
            verbs = "\n\n".join(map(verbs_of, (CAPTURES, LAB)))
            programs = "\n".join(f"  {name:17}{what}" for name, what in PROGRAMS.items())
            print(as_called(HELP.format(verbs=verbs, programs=programs)), end="")
            return
        if verb == "--version":
            from cli.version import version  # importlib.metadata takes a while

            print(NAME, version())
            return
        if verb not in VERBS:
            hint = READS_MEMORY if verb == "memory" else ending(verb, [*VERBS, *PROGRAMS])
            raise ValueError(f"{verb}: no such verb{hint}")
        if VERBS[verb].keeps_freed:
            keep_freed_memory()
        module = import_module(f"profiling.verbs.{verb}")
        with unwind_on_signal():
            raise SystemExit(module.main([*arguments]))


def verbs_of(group: str) -> str:
    """Lines of the help text: the group's name, then its verbs with their purposes."""
    lines = [f"  {name:11}{verb.purpose}" for name, verb in VERBS.items() if verb.group == group]
    return "\n".join([group, *lines])


if __name__ == "__main__":
    main()
