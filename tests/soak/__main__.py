"""`python -m tests.soak`: randomised tests, each trial from a seed; `... NAME` runs one.

    python -m tests.soak NAME count=COUNT seed=SEED jobs=JOBS
    python -m tests.soak NAME --help

Run them in the folder of a checkout. Each prints every failure with the seed that repeats it, and a
table of the results. The ordinary tests run a small share of each.

exit code: 0 if no trial failed, else 1
"""

if __name__ == "__main__":
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

from benchmarks.programs import Folder, Program
from tests.soak.trials import main_of

SOAK = Folder(
    "tests.soak",
    __doc__,
    {
        "inputs": Program(
            "bad inputs of all programs: one line and exit code 2, or valid", "count=600"
        ),
        "wrong_inputs": Program(
            "wrong commands of all programs: exit code 2 and one line, always", "count=659"
        ),
        "fuzz": Program(
            "damaged captures, runs and ncu pages: read by commands, or refused in one line",
            "count=2000",
        ),
        "damaged_captures": Program(
            "damaged captures: read by the readers, or refused in one line", "count=10000"
        ),
        "damaged_checkpoints": Program(
            "damaged checkpoints: read unchanged, or refused in one line", "count=5000"
        ),
        "lossy_captures": Program(
            "captures with lost records: no verdict; whole captures: no warning", "count=400"
        ),
        "kills": Program(
            "SIGKILL at random moments: after a resume the result is bitwise equal", "count=1000"
        ),
        "clock_kills": Program(
            "SIGKILL at random moments of README's CPU run: loses at most one interval", "count=100"
        ),
        "signals": Program(
            "SIGINT and SIGTERM at random moments: a quiet end, and the same result", "count=500"
        ),
        "pairs": Program(
            "two processes with one folder: one runs, the other is refused", "count=50"
        ),
        "disk_full": Program(
            "a disk that fills at random moments: nothing is lost, all is reported", "count=100"
        ),
        "wandb_deaths": Program(
            "wandb-core killed or stopped: all rows in metrics.jsonl, one warning", "count=40"
        ),
    },
    main_of,
)

if __name__ == "__main__":
    SOAK.start()
