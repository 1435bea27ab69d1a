"""Shows runs side by side: which is faster and by how much, losses over iterations and over time
with the spread over seeds, time to a loss, step times, MFU, memory, GPU metrics, differences of
their configurations, and links to their captures. Runs that differ only in the seed form one group.

{flags}

examples
  python -m profiling dashboard out-slow out-flash -o dashboard.html
  python -m profiling dashboard experiments/ --loss 1.6 --watch
  python -m profiling dashboard --entity me --project profiling-nanogpt
  python -m profiling dashboard --entity me --project profiling-nanogpt --by batch_size,dropout
  python -m profiling dashboard --entity me --project profiling-nanogpt --dry-run spec.json
"""

import argparse
from functools import partial
from pathlib import Path

from cli.keys import keys, unknown_key
from cli.parser import Parser, flag, names, within
from cli.plain import plain, without_controls
from profiling.analysis.runs.folder import find_run_folders, read_runs
from profiling.report.dashboard.document import dashboard_page
from profiling.report.dashboard.server import LivePage, dashboard_of, serve
from profiling.shared.run_files import check_output
from profiling.verbs.progress import progress_line
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
            "no runs are given; name their folders (out_dir), or give --entity and --project for "
            "W&B"
        )
    if flags.watch and flags.output:
        raise ValueError("-o: --watch serves the page and writes no file; give only one of the two")
    if flags.watch:
        live = live_page(flags)
        return serve(lambda path: live if path == "/" else None, flags.host, flags.port)
    file = flags.output or DEFAULT_FILE
    check_new(file, ".html", ".htm")
    folders = find_run_folders(flags.places)
    check_output(file, *folders)
    links_from = file.absolute().parent
    with progress_line(f"reading {len(folders)} runs") as say:
        runs, notes = read_runs(folders)
        say(f"making {file.name}")
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
    loss = "the validation loss to reach, for times to a loss; default: a loss that all runs reach"
    flag(parser, "--loss LOSS", loss, within(float, 0.0001, 10_000))
    add("--metric", action="append", default=[], metavar="NAME", help="one more chart; repeatable")
    flag(
        parser,
        "--watch",
        "serve the page and update it while the runs train; Ctrl-C ends the server",
    )
    host = "address for --watch; default: only this machine"
    flag(parser, "--host HOST", host, default="127.0.0.1")
    flag(parser, "--port PORT", "default: %(default)s; 0: any free port", int, default=8050)
    group = parser.add_argument_group("in W&B")
    flag(group, "--entity ENTITY", "user or team in which to create a Workspace and a Report")
    flag(group, "--project PROJECT", "the project of the runs")
    flag(group, "--group GROUP", "only runs of this group (wandb.group)")
    flag(group, "--tag TAG", "only runs with this tag (wandb.tags)")
    by = (
        "the keys that distinguish runs, separated by commas; default: attention. A chart has a "
        "line for each value of the first key. An HTML page finds the differing keys by itself"
    )
    flag(group, "--by KEY", by, names)
    flag(group, "--baseline ID", "the run with which the table compares the others")
    flag(
        group,
        "--ranks",
        "also show which rank waits for which; an HTML page shows this if the runs logged it",
    )
    unsent = "write what would be created as JSON, to FILE or to the screen; needs no login"
    group.add_argument(
        "--dry-run",
        nargs="?",
        type=new_file(".json", stdout=True),
        const=STDOUT,
        metavar="FILE",
        help=unsent,
    )
    return parser.parse_args(argv)


def live_page(flags: argparse.Namespace) -> LivePage:
    """The page of the run folders for the server, as they are when it is asked for."""
    folders = partial(find_run_folders, flags.places)

    def make_page(mark: str, bare: bool) -> str:
        runs, notes = read_runs(folders())
        return dashboard_page(
            runs, notes=notes, loss=flags.loss, extra=flags.metric, mark=mark, bare=bare
        )

    return dashboard_of(folders, make_page)


def in_wandb(flags: argparse.Namespace) -> int:
    from configs.schema import Config
    from profiling.report.dashboard import wandb_views  # takes a second, which no page needs

    for name in ("entity", "project"):
        if not getattr(flags, name):
            raise ValueError(f"--{name}: this flag is missing; W&B needs --entity and --project")
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
