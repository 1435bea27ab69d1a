"""`python -m validation`: programs that check verdicts and pages; `... NAME` runs one.

    python -m validation NAME KEY=VALUE ...
    python -m validation NAME --help

Run them in the folder of a checkout. docs/benchmarks.md, docs/truth.md and docs/pages.md
have the results so far.
"""

if __name__ == "__main__":
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

from benchmarks.programs import Folder, Program

VALIDATION = Folder(
    "validation",
    __doc__,
    {
        "planted": Program("does the verdict name a planted bottleneck?", gpu=True),
        "planted_ranks": Program(
            "does the report name the faulty rank, its cause and its cost?", gpu=True
        ),
        "ranks_survive": Program(
            "a killed rank, a lost host, a hang, resumes: is the run the same?"
        ),
        "foreign_ranks": Program(
            "the same in nanoGPT's DDP, accelerate and FSDP2, with two profilers", gpu=True
        ),
        "foreign": Program(
            "planted bottlenecks in torchvision, timm, transformers and others, with two profilers",
            gpu=True,
        ),
        "on_cpu": Program("planted bottlenecks in programs that train without a GPU"),
        "peers": Program(
            "nsys-ai, HTA and TraceLens on the captures of foreign series=6|7", "out=OUT"
        ),
        "agent": Program("48 questions to the server of `profiling mcp`, and its answers"),
        "any_program": Program("programs of others, run with the hook and without"),
        "pairs": Program(
            "programs with one plain change at a time, timed in turns and captured", gpu=True
        ),
        "predictions": Program(
            "predictions of `whatif` for these pairs, and how right they are", "out=OUT"
        ),
        "profiler_cost": Program("what each event costs the host under torch.profiler and nsys"),
        "memory_judged": Program(
            "memory snapshots of programs that are not ours, judged by what is known of them",
            gpu=True,
        ),
        "lines_share": Program(
            "share of kernel time with a line of the program, and what recording stacks costs",
            gpu=True,
        ),
        "predicted": Program("predictions of `scale` and the steps measured on several GPUs"),
        "memory_fit": Program(
            "peaks that `report --fit` predicts, and as they are tried", gpu=True
        ),
        "aa_trials": Program(
            "how often `ab` reports a difference between equal sides", "records=FILE"
        ),
        "bisect_histories": Program("does `bisect` name the planted commit, and none without one?"),
        "busy_pairs": Program(
            "how often `compare` and `ab` report a difference on a busy CPU",
            "folder=FOLDER",
        ),
        "pages": Program(
            "weight, paint, axe, phone and paper of the pages; what ten answers take on them"
        ),
    },
)

if __name__ == "__main__":
    VALIDATION.start()
