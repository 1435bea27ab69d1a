"""Runs side by side: which is faster and by how much, losses over iterations and over time with the
seeds' spread, time to a loss, step times, MFU, memory, GPU metrics, what their configurations
differ in, links to their captures. Runs that differ by their seed alone are put together.

{flags}

examples
  python -m profiling dashboard out-slow out-flash -o dashboard.html
  python -m profiling dashboard experiments/ --loss 1.6 --watch
  python -m profiling dashboard --entity me --project profiling-nanogpt
  python -m profiling dashboard --entity me --project profiling-nanogpt --by batch_size,dropout
  python -m profiling dashboard --entity me --project profiling-nanogpt --dry-run spec.json
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cli.keys import keys, unknown_key
from cli.parser import Parser, flag, names, within
from cli.plain import plain, without_controls
from profiling.analysis.runs.folder import find_run_folders, read_runs
from profiling.report.dashboard.document import dashboard_page
from profiling.report.dashboard.server import MakePage, serve
from profiling.shared.run_files import check_output
from profiling.verbs.results import STDOUT, check_new, new_file, put

# what runs may differ in beside their keys, as W&B gets it
BESIDE_KEYS = ("experiment", "run.data", "run.device", "run.torch", "environment.git.commit")
DEFAULT_FILE = Path("dashboard.html")


def main(argv: list[str]) -> int:
    """Make the page, serve it, or make views in W&B; return the exit code.

    Raises ValueError for a user's mistake.
    """
    flags = parse(argv)
    if flags.entity or flags.project:
        return in_wandb(flags)
    for name in ("group", "tag", "by", "baseline", "ranks", "dry_run"):
        if getattr(flags, name) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')}: needs --entity and --project")
    if not flags.places:
        raise ValueError(
            "which runs? give their folders (out_dir), or --entity and --project for W&B"
        )
    if flags.watch and flags.output:
        raise ValueError("-o: --watch serves the page and writes no file; give one of them")
    if flags.watch:
        return serve(*live_page(flags), flags.host, flags.port)
    file = flags.output or DEFAULT_FILE
    check_new(file, ".html", ".htm")
    folders = find_run_folders(flags.places)
    check_output(file, *folders)
    runs, notes = read_runs(folders)
    links_from = file.absolute().parent
    page = dashboard_page(
        runs, notes=notes, loss=flags.loss, extra=flags.metric, links_from=links_from
    )
    put(file, page)
    for note in notes:
        print(plain(f"note: {note}"))
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    print(f"{without_controls(str(file))}: {count}, {len(page) / 1e6:.1f} MB")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("dashboard", __doc__)
    add = parser.add_argument
    add("places", nargs="*", type=Path, metavar="OUT_DIR", help="run folders, or folders of them")
    flag(parser, "-o --output FILE", f"default: {DEFAULT_FILE}", new_file(".html", ".htm"))
    loss = "the validation loss that times are taken to; default: all reach it"
    flag(parser, "--loss LOSS", loss, within(float, 0.0001, 10_000))
    add("--metric", action="append", default=[], metavar="NAME", help="one more chart; repeatable")
    flag(parser, "--watch", "serve the page and follow the runs; Ctrl-C ends it")
    host = "that --watch listens on; default: this machine alone"
    flag(parser, "--host HOST", host, default="127.0.0.1")
    flag(parser, "--port PORT", "default: %(default)s; 0: any free one", int, default=8050)
    group = parser.add_argument_group("in W&B")
    flag(group, "--entity ENTITY", "user or team: make a Workspace and a Report there")
    flag(group, "--project PROJECT", "the project of the runs")
    flag(group, "--group GROUP", "only runs of this group (wandb.group)")
    flag(group, "--tag TAG", "only runs that bear this tag (wandb.tags)")
    by = (
        "the keys that runs are told apart by, by comma; default: attention. A chart has a line "
        "for each value of the first. A page finds what differs"
    )
    flag(group, "--by KEY", by, names)
    flag(group, "--baseline ID", "the run that the table shows the others against")
    flag(group, "--ranks", "also who waits for whom; a page shows it where runs logged it")
    unsent = "write what would be made as JSON, to FILE or the screen; needs no login"
    group.add_argument(
        "--dry-run",
        nargs="?",
        type=new_file(".json", stdout=True),
        const=STDOUT,
        metavar="FILE",
        help=unsent,
    )
    return parser.parse_args(argv)


def live_page(flags: argparse.Namespace) -> tuple[Callable[[], list[Path]], MakePage]:
    """Two functions for the server: one finds the run folders, one makes their page, each as they
    are when it is called."""
    folders = partial(find_run_folders, flags.places)

    def make_page(mark: str, bare: bool) -> str:
        runs, notes = read_runs(folders())
        return dashboard_page(
            runs, notes=notes, loss=flags.loss, extra=flags.metric, mark=mark, bare=bare
        )

    return folders, make_page


def in_wandb(flags: argparse.Namespace) -> int:
    from configs.schema import Config
    from profiling.report.dashboard import wandb_views  # takes a second, which no page needs

    for name in ("entity", "project"):
        if not getattr(flags, name):
            raise ValueError(f"--{name}: is missing; W&B needs --entity and --project")
    if flags.places or flags.watch:
        raise ValueError(
            "give folders for an HTML page, or --entity and --project for W&B, not both"
        )
    known = [key for key in keys(Config) if not key.startswith("wandb.")] + [*BESIDE_KEYS]
    for key in flags.by or ():
        if key not in known:
            raise ValueError(f"--by {unknown_key(key, known)}")
    by = tuple(dict.fromkeys(flags.by or ("attention",)))
    views = wandb_views.Views(
        flags.entity,
        flags.project,
        flags.group,
        by,
        tag=flags.tag,
        extra=tuple(flags.metric),
        baseline=flags.baseline,
        ranks=flags.ranks,
    )
    if flags.dry_run is not None:
        put(flags.dry_run, wandb_views.as_json(views))
        if flags.dry_run != STDOUT:
            print(f"{flags.dry_run}: the Workspace and the Report as JSON; nothing was sent")
        return 0
    for what, url in wandb_views.publish(views):
        print(f"{what:10}{url}")
    return 0
