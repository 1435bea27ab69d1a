"""`python -m profiling VERB ...`: what is done around a training run, one verb for each."""

import sys
from importlib import import_module

# verb -> the module whose main(argv) does it and returns the exit code, what it is for
VERBS = {
    "run": ("profiling.launch.run", "train under nsys; ends with the report and its .sqlite"),
    "scrub": ("profiling.launch.scrub", "take environment and folders out of a .sqlite"),
    "doctor": ("profiling.launch.doctor", "what profiling needs of this machine, with cures"),
}

HELP = """\
Captures of training runs: made, checked and read.

usage: python -m profiling VERB ...       python -m profiling VERB --help

verbs
{verbs}

examples
  python -m profiling doctor
  python -m profiling run config/shakespeare_char.yaml attention=flash
  python -m profiling run --preset metrics config/shakespeare_char.yaml
  python -m profiling run --dry-run config/shakespeare_char.yaml -- --osrt-threshold=10000
"""


def main() -> None:
    from configs.errors import suggestion, user_errors

    verb, *arguments = sys.argv[1:] or ["--help"]
    if verb in ("-h", "--help"):
        print(HELP.format(verbs="\n".join(f"  {v:10}{text}" for v, (_, text) in VERBS.items())))
        return
    sys.argv[0] = f"profiling {verb}" if verb in VERBS else "profiling"  # as errors name it
    with user_errors():
        if verb not in VERBS:
            near = suggestion(verb, VERBS) or f"; there are {', '.join(VERBS)}"
            raise ValueError(f"{verb}: no such verb{near}")
        raise SystemExit(import_module(VERBS[verb][0]).main(arguments))


if __name__ == "__main__":
    main()
