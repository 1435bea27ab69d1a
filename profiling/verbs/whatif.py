"""Predicts a step with a change, before anybody makes it: replays the captured calls and operations
without what the change takes away.

{flags}

Without a change, all of --no and --graphs of which the capture holds anything are predicted. Each
step comes with an interval, what limits it then, and what the change leaves. How often this was
right on unseen programs: docs/whatif.md. `ab` measures a change.

examples
  python -m profiling whatif out-shakespeare-char
  python -m profiling whatif nsys.sqlite --no data sync
  python -m profiling whatif trace.json.gz --graphs --free 7.4
  python -m profiling whatif nsys.sqlite --scale gemm=0.5 --scale elementwise=0.8 --together
  python -m profiling whatif trace.json.gz --without 'aten::_foreach_.*|Optimizer.step.*'

exit code: 0; 3 if no change that was asked for can be told; 2 for a mistake in the command line or
a capture that cannot be read or replayed
"""

import re
import shlex
import signal
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from cli.parser import Parser, flag, within
from cli.plain import without_controls
from cli.program import as_called
from configs.backends import BACKENDS
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.found import rank_captures
from profiling.analysis.whatif.changes import NO
from profiling.analysis.whatif.swap import read_lab
from profiling.analysis.whatif.whatif import Asked, what_if
from profiling.analysis.whatif.whatif_records import WhatIf
from profiling.shared.json_records import to_json
from profiling.verbs.gate import CANNOT_TELL
from profiling.verbs.progress import reading_bar
from profiling.verbs.report import CAPTURE
from profiling.verbs.results import check_outputs, output_flags, say_written, show, write_outputs

MATCHING_S = 2.0  # at most, to hold the pattern of --without against all names


def main(argv: list[str]) -> int:
    """Predict, print and write; return the exit code. Raises ValueError for a user's mistake."""
    flags = parse(argv)
    if rank_captures([flags.capture], ranks=False):
        raise ValueError(
            f"{flags.capture}: it has captures of several ranks; for several GPUs: "
            "python -m profiling scale"
        )
    with reading_bar(flags.capture) as say:
        capture = open_report(flags.capture, flags.manifest, step=flags.step)
        for wanted in flags.without:
            check_time(wanted, capture.trace.names)
        say("replaying")
        result = what_if(capture.analysis, capture.manifest, request_of(flags))
    write(flags, result)
    told = [row for row in result.predictions if row.answer != "cannot tell"]
    return 0 if told or not result.predictions and result.gates.passed else CANNOT_TELL


def parse(argv: list[str]) -> Namespace:
    parser = Parser("whatif", __doc__)
    help = f"the capture of a run on one GPU: {CAPTURE}"
    parser.add_argument("capture", type=Path, metavar="CAPTURE", help=help)
    group = parser.add_argument_group("changes")
    causes = (
        "data: each batch is ready; sync: no wait for the GPU; copies: none between host and GPU; "
        "allocation: no calls that allocate; cpu: no long host work between calls"
    )
    group.add_argument(
        "--no", nargs="+", action="extend", choices=[*NO], default=[], metavar="CAUSE", help=causes
    )
    add = partial(flag, group)
    add("--graphs", "the host launches once, from CUDA graphs; no fusion")
    scale = "kernels of a family take FACTOR times as long, such as gemm=0.8; may be repeated"
    group.add_argument(
        "--scale",
        type=scaled_family,
        action="append",
        default=[],
        metavar="FAMILY=FACTOR",
        help=scale,
    )
    without = (
        "nothing of what the host did, and launched, inside operators and ranges with a name that "
        "matches as a whole; may be repeated"
    )
    group.add_argument(
        "--without", type=pattern, action="append", default=[], metavar="REGEX", help=without
    )
    add(
        "--swap attention=NAME",
        "this trainer's other attention backend, as --lab measured both",
        swapped_backend,
    )
    add("--lab FILE", "of python -m profiling attention --backward --json FILE", Path)
    add("--batch N", "refused: nothing measured says how kernels grow", within(int, 1))
    add("--together", "all of these changes at once, not one by one")
    free = "the step without a profiler, in ms (from the manifest, else estimated)"
    flag(parser, "--free MS", free, within(float, 0.0001, 1e9))
    flag(parser, "--step NAME", "name of the ranges that are steps, without their number")
    flag(parser, "--manifest FILE", "the manifest of the window, if it is not beside CAPTURE", Path)
    output_flags(
        parser,
        json="all figures (docs/report-schema.md)",
        markdown="as Markdown",
        html="one HTML page",
    )
    flags = parser.parse_args(argv)
    if flags.lab and not flags.swap:
        raise ValueError("--lab: goes with --swap")
    if flags.batch:
        raise ValueError(
            f"--batch {flags.batch}: no kernel was measured at another batch, so nothing says how "
            "much longer it takes; measure steps of both: python -m profiling ab batch_size=A,B"
        )
    inputs = filter(None, [flags.capture, flags.manifest, flags.lab])
    check_outputs(flags, *(path for path in inputs if path.exists()))
    return flags


def scaled_family(word: str) -> tuple[str, float]:
    """Parse FAMILY=FACTOR. Raises ArgumentTypeError."""
    family, _, factor = word.partition("=")
    if not family or not factor:
        raise ArgumentTypeError(f"{word}: give FAMILY=FACTOR, such as gemm=0.8")
    try:
        return family, within(float, 0, 1000)(factor)
    except ValueError:
        raise ArgumentTypeError(f"{word}: {factor} is no number") from None


def swapped_backend(word: str) -> str:
    """Parse attention=NAME. Raises ArgumentTypeError."""
    key, _, name = word.partition("=")
    if key != "attention" or name not in BACKENDS:
        raise ArgumentTypeError(f"{word}: give attention=NAME, of {', '.join(BACKENDS)}")
    return name


def pattern(word: str) -> re.Pattern[str]:
    """Parse a regular expression. Raises ArgumentTypeError."""
    try:
        return re.compile(word)
    except (re.error, OverflowError, RecursionError) as error:
        raise ArgumentTypeError(f"{word}: no regular expression: {error}") from None


def check_time(wanted: re.Pattern[str], names: Iterable[str]) -> None:
    """Raise ValueError for a pattern that goes back and forth in the names for too long."""

    def stop(*_: object) -> None:
        raise ValueError(
            f"--without {wanted.pattern}: matching took over {MATCHING_S:g} s; write it without "
            "repeats inside repeats, such as (a+)+"
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MATCHING_S)
    try:
        for name in names:
            wanted.fullmatch(name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def request_of(flags: Namespace) -> Asked:
    return Asked(
        no=tuple(dict.fromkeys(flags.no)),
        graphs=flags.graphs,
        scale=tuple(dict.fromkeys(flags.scale)),
        without=tuple(flags.without),
        attention=flags.swap,
        lab=None if flags.lab is None else read_lab(flags.lab),
        together=flags.together,
        free_ms=flags.free,
    )


def write(flags: Namespace, result: WhatIf) -> None:
    from profiling.report.whatif import headline, whatif_document

    document = whatif_document(result)
    written = write_outputs(flags, to_json(result), document)
    if not written:
        show(document)
        print(*next_steps(flags.capture, result), sep="\n", end="\n\n")
        print(without_controls(headline(result)))
    say_written(without_controls(headline(result)), written)


def next_steps(capture: Path, result: WhatIf) -> Iterator[str]:
    """Yield the lines behind the predictions: the commands that measure them."""
    verb = as_called("next    python -m profiling")
    for row in result.predictions:
        if row.try_it:
            yield without_controls(f"{verb} {row.try_it}   # measures {row.change}")
    yield without_controls(f"{verb} report {shlex.quote(str(capture))}")
