"""`python -m profiling dashboard`: runs side by side, as one HTML file or as a dashboard in W&B."""

import argparse
import math
from pathlib import Path

from cli.files import write_text
from cli.parser import Parser
from profiling.analysis.runs.folder import find_run_folders, read_runs
from profiling.report import dashboard_server
from profiling.report.dashboard_page import dashboard_page

DESCRIPTION = """\
Runs side by side: which is faster and by how much, losses over iterations and over time with the
seeds' spread, time to a loss, step times, MFU, memory, GPU metrics, what their configurations
differ in, links to their captures. Runs that differ by their seed alone are put together.

  python -m profiling dashboard out-slow out-flash -o dashboard.html
  python -m profiling dashboard experiments/ --loss 1.6 --watch
  python -m profiling dashboard --entity me --project profiling-nanogpt
  python -m profiling dashboard --entity me --project profiling-nanogpt --dry-run spec.json
"""
DEFAULT_FILE = Path("dashboard.html")
DEFAULT_PORT = 8050


def main(arguments: list[str]) -> int:
    """Returns the exit code; raises ValueError on a user's mistake."""
    options = parsed(arguments)
    if options.loss is not None and not 0 < options.loss < math.inf:
        raise ValueError(f"--loss {options.loss}: must be a number above 0")
    if options.entity or options.project:
        return in_wandb(options)
    for name in ("group", "dry_run"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')}: needs --entity and --project")
    if not options.places:
        raise ValueError(
            "which runs? give their folders (out_dir), or --entity and --project for W&B"
        )
    if options.watch and options.output:
        raise ValueError("-o: --watch serves the page and writes no file; give one of them")
    if options.watch:
        made = Making(options)
        return dashboard_server.serve(made.folders, made.page, options.host, options.port)
    file = options.output or DEFAULT_FILE
    runs, notes = read_runs(find_run_folders(options.places))
    page = dashboard_page(
        runs,
        notes=notes,
        loss=options.loss,
        extra=options.metric,
        links_from=file.absolute().parent,
    )
    write_text(file, page)
    for note in notes:
        print(f"note: {note}")
    print(f"{file}: {len(runs)} run{'s' if len(runs) > 1 else ''}, {len(page) / 1e6:.1f} MB")
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("dashboard", DESCRIPTION)
    add = parser.add_argument
    add("places", nargs="*", type=Path, metavar="OUT_DIR", help="run folders, or folders of them")
    add("-o", "--output", type=Path, metavar="FILE", help=f"default: {DEFAULT_FILE}")
    add(
        "--loss",
        type=float,
        help="the validation loss that times are taken to; default: all reach it",
    )
    add("--metric", action="append", default=[], metavar="NAME", help="one more chart; repeatable")
    add("--watch", action="store_true", help="serve the page and follow the runs; Ctrl-C ends it")
    add("--host", default="127.0.0.1", help="that --watch listens on; default: this machine alone")
    add("--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0: any free one")
    wandb = parser.add_argument_group("in W&B")
    wandb.add_argument("--entity", help="user or team: make a Workspace and a Report there")
    wandb.add_argument("--project", help="the project of the runs")
    wandb.add_argument("--group", help="only runs of this group (wandb.group)")
    wandb.add_argument(
        "--dry-run", nargs="?", type=Path, const=Path("-"), metavar="FILE",
        help="write what would be made as JSON, to FILE or the screen; needs no login",
    )  # fmt: skip
    return parser.parse_args(arguments)


class Making:
    """The page of a server, made anew from the folders as they are then."""

    def __init__(self, options: argparse.Namespace):
        self.options = options

    def folders(self) -> list[Path]:
        return find_run_folders(self.options.places)

    def page(self, version: str) -> str:
        runs, notes = read_runs(self.folders())
        return dashboard_page(
            runs,
            notes=notes,
            loss=self.options.loss,
            extra=self.options.metric,
            version=version,
        )


def in_wandb(options: argparse.Namespace) -> int:
    from profiling.report import wandb_dashboard  # takes a second, which a page does not need

    for name in ("entity", "project"):
        if not getattr(options, name):
            raise ValueError(f"--{name}: is missing; W&B needs --entity and --project")
    if options.places or options.watch:
        raise ValueError(
            "give folders for an HTML page, or --entity and --project for W&B, not both"
        )
    if options.dry_run is not None:
        text = wandb_dashboard.as_json(options.entity, options.project, options.group)
        if options.dry_run == Path("-"):
            print(text)
        else:
            write_text(options.dry_run, text + "\n")
            print(f"{options.dry_run}: the Workspace and the Report as JSON; nothing was sent")
        return 0
    for what, url in wandb_dashboard.publish(options.entity, options.project, options.group):
        print(f"{what:10}{url}")
    return 0
