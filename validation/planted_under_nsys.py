"""A planted training under nsys in a process of its own: planted_ranks starts it.

    PLANT=rank_loader python -m validation.planted_under_nsys --nproc-per-node 2 --ranks all ...

The words are those of `python -m profiling run` for this project's training. The captures are
exported, but not reported: planted_ranks reads them.
"""

if __name__ == "__main__":
    import sys

    from cli.process import begin

    begin()  # a signal ends it at once, or is sent on to nsys while that runs
    from cli.errors import user_errors
    from profiling.verbs import run
    from validation.planted import TRAINER

    run.report_on = lambda folder, several: None
    with user_errors():
        sys.exit(run.main(sys.argv[1:], TRAINER))
