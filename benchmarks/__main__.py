"""`python -m benchmarks`: the speed of this project itself; `... NAME` measures it.

    python -m benchmarks NAME KEY=VALUE ...
    python -m benchmarks NAME --help

From a checkout's own folder. What was measured so far stands in docs/benchmarks.md. Evidence for
verdicts is made by `python -m validation`, and `python -m tests.soak` ill-treats what there is.
"""

if __name__ == "__main__":
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

from benchmarks.programs import Folder, Program

BENCHMARKS = Folder(
    "benchmarks",
    __doc__,
    {
        "span_overhead": Program("what the loop's NVTX ranges cost a step"),
        "sampler_overhead": Program("what sampling the GPUs costs a step", gpu=True),
        "as_typed": Program(
            "a training command's step and its first and second process, nanoGPT's beside it",
            gpu=True,
        ),
        "scaling": Program("what each GPU more keeps of a step, nanoGPT's beside it", gpu=True),
        "report_speed": Program("seconds and memory of `report` on large captures"),
        "ranks": Program("seconds and memory of `report` on the captures of many ranks"),
        "repeat_capture": Program(
            "nothing: repeats a capture until it is large", "capture=FILE out=FILE"
        ),
    },
)

if __name__ == "__main__":
    BENCHMARKS.start()
