"""Adds the report of a capture to the W&B run of its training, when that has ended.

{flags}

The run gets tables (capture/summary, capture/families, capture/phases), the page with its charts
(capture/report), and the capture as an artifact, a version of its configuration's: verdict, step
time, GPU and commit are its metadata. Of the capture a copy is uploaded from which the environment,
user, host and folders were taken (python -m profiling scrub); never a .nsys-rep, which cannot be
scrubbed. A run that was recorded offline gets this offline too, to be sent with the
`wandb sync` command that is printed.

--metrics sends rows instead: those of OUT_DIR/metrics.jsonl that the server has not got, because
W&B failed in the run, or there was no network; twice sent they are there once.

exit code: 0, or 2 for a mistake in the command line, a capture that cannot be read, W&B's refusal
"""

from pathlib import Path

from cli.parser import Parser, flag
from cli.program import as_called
from profiling.launch.wandb_log import log_capture, log_metrics


def main(argv: list[str]) -> int:
    """Add the report, or send rows; return the exit code. Raises ValueError with one line if it
    cannot."""
    parser = Parser("log", __doc__)
    what = (
        "an nsys export (.sqlite), a torch.profiler trace (.json), either as .gz, or a run's "
        "folder: its newest capture"
    )
    parser.add_argument("capture", type=Path, metavar="CAPTURE", help=what)
    flag(parser, "--run OUT_DIR", "the run's folder, where CAPTURE does not lie in it", Path)
    flag(parser, "--metrics", "CAPTURE is a run's folder: send its missing rows, no capture")
    flags = parser.parse_args(argv)
    if flags.metrics:
        print(as_called(log_metrics(flags.run or flags.capture)))
        return 0
    print(as_called(log_capture(flags.capture, flags.run)))
    return 0
