"""Adds the report of a capture to the W&B run of its training after the training has ended.

{flags}

examples
  python -m profiling log out-shakespeare-char
  python -m profiling log nsys.sqlite --run out-shakespeare-char
  python -m profiling log out-shakespeare-char --metrics

The run gets tables (capture/summary, capture/families, capture/phases), the page with its charts
(capture/report), and the capture as an artifact, as a new version of the artifact of its
configuration, with verdict, step time, GPU and commit as metadata. The uploaded capture is a copy
without environment, user, host and folders (python -m profiling scrub); a .nsys-rep is never
uploaded, because it cannot be scrubbed. For a run that was recorded offline, all of this is
recorded offline too; send it with the `wandb sync` command that is printed.

--metrics sends rows instead: the rows of OUT_DIR/metrics.jsonl that the server does not have,
because W&B failed during the run or there was no network. Rows that are sent twice are stored once.

exit code: 0, or 2 for a mistake in the command line, an unreadable capture, or an error from W&B
"""

from pathlib import Path

from cli.files import not_a_folder
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
    flag(parser, "--run OUT_DIR", "the folder of the run, if CAPTURE is not in it", Path)
    flag(
        parser,
        "--metrics",
        "send the missing rows and no capture; CAPTURE is the folder of the run",
    )
    flags = parser.parse_args(argv)
    if flags.run and not flags.run.is_dir():
        raise ValueError(f"--run {flags.run}: {not_a_folder(flags.run)}; give the out_dir of a run")
    if flags.metrics:
        print(as_called(log_metrics(flags.run or flags.capture)))
        return 0
    print(as_called(log_capture(flags.capture, flags.run)))
    return 0
