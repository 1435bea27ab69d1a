"""`python -m benchmarks`: programs that measure the speed of this project; `... NAME` runs one.

    python -m benchmarks NAME KEY=VALUE ...
    python -m benchmarks NAME --help

Run them in the folder of a checkout. docs/benchmarks.md has the results so far. `python -m
validation` checks verdicts, and `python -m tests.soak` runs randomised tests.
"""

if __name__ == "__main__":
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

from benchmarks.programs import Folder, Program

BENCHMARKS = Folder(
    "benchmarks",
    __doc__,
    {
        "span_overhead": Program("cost of the loop's NVTX ranges per step"),
        "attach": Program("cost per step of the hook in a program of others"),
        "sampler_overhead": Program("cost of sampling the GPUs per step", gpu=True),
        "as_typed": Program(
            "step, first and second process of a training command, compared with nanoGPT",
            gpu=True,
        ),
        "scaling": Program(
            "speed that each GPU keeps on several GPUs, compared with nanoGPT", gpu=True
        ),
        "records": Program(
            "seconds to a validation loss, speed and energy of GPT-2 124M, kept to be checked",
            gpu=True,
        ),
        "first_report": Program("megabytes and seconds from `git clone` to the first report"),
        "report_speed": Program("seconds and memory of `report` on large captures"),
        "ranks": Program("seconds and memory of `report` on the captures of many ranks"),
        "repeat_capture": Program(
            "measures nothing: repeats a capture until it is large", "capture=FILE out=FILE"
        ),
        "repeat_snapshot": Program(
            "measures nothing: repeats a memory snapshot until it is large",
            "snapshot=FILE out=FILE",
        ),
    },
)

if __name__ == "__main__":
    BENCHMARKS.start()
