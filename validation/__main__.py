"""`python -m validation`: are the verdicts right? `... NAME` finds out.

    python -m validation NAME KEY=VALUE ...
    python -m validation NAME --help

From a checkout's own folder. What came of it so far stands in docs/benchmarks.md and docs/truth.md.
"""

if __name__ == "__main__":
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

from benchmarks.programs import Folder, Program

VALIDATION = Folder(
    "validation",
    __doc__,
    {
        "planted": Program("does the verdict find bottlenecks that were put in?", gpu=True),
        "planted_ranks": Program(
            "is the rank with a fault named, with its cause and its cost?", gpu=True
        ),
        "foreign": Program(
            "the same in programs of torchvision, timm and transformers, by two profilers", gpu=True
        ),
        "predicted": Program("what `scale` says of steps that were measured on several GPUs"),
        "aa_trials": Program(
            "how often `ab` calls a difference where there is none", "records=FILE"
        ),
        "busy_pairs": Program(
            "how often `compare` and `ab` call a difference of CPU runs beside other work",
            "folder=FOLDER",
        ),
    },
)

if __name__ == "__main__":
    VALIDATION.start()
