"""`python -m benchmarks`: what is measured of this project itself; `... NAME` measures it.

    python -m benchmarks NAME KEY=VALUE ...
    python -m benchmarks NAME --help

From a checkout's own folder. What was measured so far stands in docs/benchmarks.md.
"""

if __name__ == "__main__":
    from cli.start_up import begin

    begin()  # from here on Ctrl-C is quiet

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import get_type_hints

from cli.errors import suggestion, user_errors
from cli.help import key_table
from cli.interrupts import unwind_on_signal
from cli.keys import parse_keys


@dataclass(frozen=True)
class Measurement:
    """Entry in the table of measurements; main(config) of the module benchmarks.NAME runs it."""

    what: str  # is measured
    keys: str = ""  # required ones, as KEY=VALUE words
    gpu: bool = False  # whether it needs one


MEASUREMENTS = {
    "span_overhead": Measurement("what the loop's NVTX ranges cost a step"),
    "sampler_overhead": Measurement("what sampling the GPUs costs a step", gpu=True),
    "timer_check": Measurement("the lab's timer against Triton's, and against itself", gpu=True),
    "planted": Measurement("does the verdict find bottlenecks that were put in?", gpu=True),
    "planted_ranks": Measurement(
        "is the rank with a fault named, with its cause and its cost?", gpu=True
    ),
    "as_typed": Measurement(
        "a training command's step and its first and second process, nanoGPT's beside it", gpu=True
    ),
    "scaling": Measurement("what each GPU more keeps of a step, nanoGPT's beside it", gpu=True),
    "predicted": Measurement("what `scale` says of steps that were measured on several GPUs"),
    "foreign": Measurement(
        "the same in programs of torchvision, timm and transformers, by two profilers", gpu=True
    ),
    "aa_trials": Measurement(
        "how often `ab` calls a difference where there is none", "records=FILE"
    ),
    "busy_pairs": Measurement(
        "how often `compare` and `ab` call a difference of CPU runs beside other work",
        "folder=FOLDER",
    ),
    "report_speed": Measurement("seconds and memory of `report` on large captures"),
    "ranks": Measurement("seconds and memory of `report` on the captures of many ranks"),
    "fuzz": Measurement("are damaged captures, runs, pages read, or refused in a line?"),
    "reliability": Measurement(
        "is anything lost or untold, however runs and commands are ill-treated?", "part=PART"
    ),
    "repeat_capture": Measurement(
        "nothing: repeats a capture until it is large", "capture=FILE out=FILE"
    ),
}


def main(words: list[str]) -> None:
    """Run the measurement `words[0]`, or print the table. Raises ValueError for a mistake."""
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        print_table()
        return
    name, *rest = words
    if name not in MEASUREMENTS:
        near = suggestion(name, MEASUREMENTS) or f"; there are {', '.join(MEASUREMENTS)}"
        raise ValueError(f"{name}: no such measurement{near}")
    sys.argv[0] = f"benchmarks {name}"  # as errors name it
    module = import_module(f"benchmarks.{name}")
    schema = get_type_hints(module.main)["config"]
    if {"-h", "--help"} & set(rest):
        defaults = schema.__new__(schema)  # without __init__, which asks for the keys that it needs
        print(f"{module.__doc__}\n{key_table(defaults)}")
        return
    module.main(parse_keys(rest, schema))


def print_table() -> None:
    print(f"{'name':18}{'GPU':9}measures; command")
    for name, measurement in MEASUREMENTS.items():
        print(f"{name:18}{'needed' if measurement.gpu else '-':9}{measurement.what}")
        print(f"{'':27}python -m benchmarks {name} {measurement.keys}".rstrip())


if __name__ == "__main__":
    sys.argv[0] = "benchmarks"
    with user_errors(), unwind_on_signal():
        main(sys.argv[1:])
