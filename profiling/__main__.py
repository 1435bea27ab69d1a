"""`python -m profiling VERB ...`: what is done around a training run, one verb for each."""

import sys
from importlib import import_module

# verb -> the module whose main(argv) does it and returns the exit code, what it is for
VERBS = {
    "run": ("profiling.verbs.run", "train under nsys; ends with the report and its .sqlite"),
    "report": ("profiling.verbs.report", "what took the time, and what holds the step back"),
    "compare": ("profiling.verbs.compare", "what changed between two captures or runs"),
    "ab": ("profiling.verbs.ab", "train with two values of a key in turn: does it matter?"),
    "export": ("profiling.verbs.export", "a capture for ui.perfetto.dev"),
    "log": ("profiling.verbs.log", "the report of a capture, added to its W&B run"),
    "dashboard": ("profiling.verbs.dashboard", "runs side by side: loss, speed, GPU"),
    "scrub": ("profiling.timeline.scrub", "take environment and folders out of a capture"),
    "doctor": ("profiling.verbs.doctor", "what profiling needs of this machine, with cures"),
    "attention": ("profiling.verbs.attention", "the attention backends side by side"),
    "square": ("profiling.verbs.square", "one operation in six ways, from eager to CUDA C++"),
    "device": ("profiling.verbs.device", "what this GPU can do, measured and nominal"),
    "ncu": ("profiling.verbs.ncu", "single kernels under Nsight Compute: what holds them back"),
    "compiled": ("profiling.verbs.compiled", "what torch.compile made: graphs, kernels, sources"),
}
FIRST_OF_LAB = "attention"

HELP = """\
Captures of training runs: made, checked and read.

usage: python -m profiling VERB ...       python -m profiling VERB --help

captures and runs
{captures}

the lab
{lab}

examples
  python -m profiling doctor
  python -m profiling run config/shakespeare_char.yaml attention=flash
  python -m profiling report out-shakespeare-char --html report.html
  python -m profiling compare slow.sqlite flash.sqlite --html comparison.html
  python -m profiling ab config/shakespeare_char.yaml attention=slow,flash
  python -m profiling dashboard out-slow out-flash -o dashboard.html
  python -m profiling attention --seq 256,1024,4096 --backward --html attention.html
  python -m profiling compiled config/shakespeare_char.yaml attention=flash
"""


def main() -> None:
    from cli.errors import suggestion, user_errors

    verb, *arguments = sys.argv[1:] or ["--help"]
    if verb in ("-h", "--help"):
        lines = [f"  {name:11}{purpose}" for name, (_, purpose) in VERBS.items()]
        lab = list(VERBS).index(FIRST_OF_LAB)
        print(HELP.format(captures="\n".join(lines[:lab]), lab="\n".join(lines[lab:])), end="")
        return
    sys.argv[0] = f"profiling {verb}" if verb in VERBS else "profiling"  # as errors name it
    with user_errors():
        if verb not in VERBS:
            near = suggestion(verb, VERBS) or f"; there are {', '.join(VERBS)}"
            raise ValueError(f"{verb}: no such verb{near}")
        raise SystemExit(import_module(VERBS[verb][0]).main(arguments))


if __name__ == "__main__":
    main()
