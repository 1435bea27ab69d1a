"""Predictions of `whatif` for the pairs of validation.pairs, held against their measured steps.

    python -m validation predictions out=out-pairs
    python -m validation predictions out=out-pairs half=second open_second_half=true
    python -m validation predictions out=out-pairs read=true markdown=docs/prediction.md
    python -m validation predictions series=7 out=out-foreign gpu="NVIDIA H100 80GB HBM3"

From each capture of a program as it is, every change is predicted for which `whatif` has one
(validation/predicted_changes.py): from the capture alone, and with the free step from the laps in
the same process. Beside it, on the same captures, today's "most to gain" of the report, and with
nsys_ai=PROGRAM the estimate of nsys-ai from the export of nsys. docs/whatif.md says how all of them
are scored.

Each prediction is a line of OUT/predictions.jsonl with what was measured; the last one of a kind
counts. `read=true` makes the tables from that file, and predicts nothing. The second half is
refused without `open_second_half=true`, which writes down when it was opened, and by which commit.
With `series` the pairs are the programs of `validation foreign series=N out=OUT`, with their fault
and without. A capture whose steps are not the program's is counted as refused.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.measuring import Keys, key
from cli.files import check_place, write_text
from profiling.analysis.open_report import Capture as Opening
from profiling.analysis.open_report import open_report
from profiling.analysis.whatif.checked import (
    PREDICTIONS,
    CheckedPrediction,
    Interval,
    is_inside,
    predicted_of,
    why_not,
)
from profiling.analysis.whatif.whatif import Asked, what_if
from profiling.analysis.whatif.whatif_records import WhatIf
from profiling.shared.json_records import append_lines, read_json, read_lines
from validation.framework_programs.series import SERIES
from validation.judged import SAME_STEP
from validation.pair_captures import unpack
from validation.pair_records import OPENED, Capture, Opened, Pair
from validation.pairs import check_half, commit, now, read_halves
from validation.predicted_changes import PREDICTED_BY
from validation.prediction_rivals import most_to_gain, nsys_ai_estimate
from validation.prediction_scores import document, latest, measured_of
from validation.series_pairs import pairs_of_series

SAME_PARTS = 0.1  # by which whole parts of a step may be off
Ask = Callable[[Opening, str, float | None], WhatIf]  # capture, change, free step in ms


@dataclass
class PredictionsConfig(Keys):
    out: str = key("out-pairs", "folder of the record of pairs")
    half: str = key("first", "first, second or all")
    open_second_half: bool = key(False, "open the second half, which is written down")
    read: bool = key(False, "make the tables of OUT/predictions.jsonl; nothing is predicted")
    series: int = key(0, "of foreign, whose OUT it is; 0: the record of pairs")
    gpu: str = key("", "name of the GPU, with series")
    nsys_ai: str = key("", "program nsys-ai", file=True)
    markdown: str = key("", "write the tables to this file, too")


def ask_whatif(capture: Opening, change: str, free_ms: float | None) -> WhatIf:
    """Answer of `whatif` to one change of validation.predicted_changes, spelled as it is typed.

    Raises ValueError where it refuses.
    """
    flag, _, value = change.partition(" ")
    asked = Asked(
        no=(value,) if flag == "--no" else (),
        graphs=flag == "--graphs",
        without=(re.compile(value),) if flag == "--without" else (),
        free_ms=free_ms,
    )
    return what_if(capture.analysis, capture.manifest, asked)


def main(config: PredictionsConfig, ask: Ask = ask_whatif) -> None:
    out = Path(config.out).resolve()
    check_half(config.half)
    if config.markdown:
        check_place(Path(config.markdown))
    file = out / PREDICTIONS
    if config.read and not file.exists():
        raise ValueError(f"out={config.out}: has no {PREDICTIONS}; leave read=true away")
    pairs = measured_pairs(config, out)
    if not config.read:
        for checks in predict_all(pairs, ask, config.nsys_ai):
            append_lines(file, checks)
    measured = {(pair.program, pair.change.name, pair.gpu) for pair in pairs}
    lines = read_lines(file, CheckedPrediction)
    known = latest(each for each in lines if (each.program, each.variant, each.gpu) in measured)
    if not known:
        raise ValueError(f"out={config.out}: has no predictions of half={config.half}")
    of = f"{len(measured)} pairs of {source_of(config, out)}"
    text = document(known, heading(of, known))
    print(text, end="")
    if config.markdown:
        write_text(Path(config.markdown), text)


def measured_pairs(config: PredictionsConfig, out: Path) -> list[Pair]:
    """The pairs that are asked for. Raises ValueError where there are none."""
    if not config.series:
        if pairs := read_halves(out, config.half, config.open_second_half):
            return pairs
        raise ValueError(f"out={config.out}: has no measured pairs of half={config.half}")
    if config.series not in SERIES:
        raise ValueError(f"series={config.series}: is one of {', '.join(map(str, SERIES))}")
    if not config.gpu:
        raise ValueError("gpu: name the GPU that the series was measured on")
    if pairs := pairs_of_series(SERIES[config.series], out, config.gpu):
        return pairs
    raise ValueError(f"out={config.out}: has no measured program of series {config.series}")


def source_of(config: PredictionsConfig, out: Path) -> str:
    """Source of the pairs in words: a series, or a half, and when that was opened."""
    if config.series:
        return f"series {config.series} of `validation foreign`."
    if config.half == "first":
        return "the first half of the record."
    halves = "both halves" if config.half == "all" else "the second half"
    when = read_json(out / OPENED, Opened)
    return (
        f"{halves} of the record. The second half was opened {when.when}, at commit {when.commit}."
    )


def heading(pairs: str, known: Sequence[CheckedPrediction]) -> str:
    """First lines of the document: which pairs, when and by what predicted."""
    times = sorted({each.when for each in known})
    commits = ", ".join(sorted({str(each.commit)[:10] for each in known}))
    return (
        f"# Predictions of `whatif`, and what was measured\n\n{pairs} Predicted "
        f"{' to '.join(dict.fromkeys((times[0], times[-1])))}, at commit {commits}. How they are "
        "made and scored: [whatif.md](whatif.md). Made by `python -m validation predictions "
        "read=true`."
    )


def predict_all(pairs: Sequence[Pair], ask: Ask, nsys_ai: str) -> Iterator[list[CheckedPrediction]]:
    """Yield the predictions from each capture, and for each program the pairs without any."""
    when, by_commit = now(), commit()
    for (program, gpu), of_program in groupby(pairs, lambda pair: (pair.program, pair.gpu)):
        group = [begun(pair, when, by_commit) for pair in of_program]
        print(f"{program}, {gpu}", file=sys.stderr, flush=True)
        yield [
            replace(checked, reason="no such change") for _, checked in group if not checked.change
        ]
        able = [(pair, checked) for pair, checked in group if checked.change]
        for capture in able[0][0].captures if able else []:
            if capture.file:
                yield list(predict_from(capture, able, ask, nsys_ai))


def begun(pair: Pair, when: str, by_commit: str | None) -> tuple[Pair, CheckedPrediction]:
    """The pair and its line, in which the prediction is still open."""
    by = PREDICTED_BY.get(pair.change.kind)
    return pair, CheckedPrediction(
        change=by.change if by else None,
        kind=pair.change.kind,
        program=pair.program,
        variant=pair.change.name,
        capture=None,
        tool=None,
        gpu=pair.gpu,
        measured=measured_of(pair),
        inside=None,
        when=when,
        commit=by_commit,
    )


def predict_from(
    capture: Capture, able: Sequence[tuple[Pair, CheckedPrediction]], ask: Ask, nsys_ai: str
) -> Iterator[CheckedPrediction]:
    """Yield what each rule predicts from one capture, without the free step and with it."""
    with TemporaryDirectory(prefix="predictions-") as folder:
        file = able[0][0].folder / str(capture.file)
        file = unpack(file, Path(folder)) if file.suffix == ".xz" else file
        try:
            opened = open_report(file)
        except ValueError as error:
            yield from (
                replace(known, reason=str(error))
                for _, line in able
                for known in as_known(line, capture)
            )
            return
        for pair, line in able:
            verdict = PREDICTED_BY[pair.change.kind].verdict
            for known in as_known(line, capture):
                yield by_whatif(known, ask, opened, capture.ms)
                gained = most_to_gain(opened.plain_report, verdict, known.free_ms)
                reason = None if gained else "nothing is ranked"
                yield replace(known, by="most to gain", predicted=gained, reason=reason)
            if nsys_ai and capture.tool == "nsys":
                guess = nsys_ai_estimate(nsys_ai, file, capture.ms, capture.steps, verdict)
                if guess:
                    without, *_ = as_known(line, capture)
                    yield replace(without, by="nsys-ai", predicted=guess)


def as_known(line: CheckedPrediction, capture: Capture) -> list[CheckedPrediction]:
    """The line from the capture alone, one with the free step of its laps if it has any, and one
    with the step that was measured in turns with the change."""
    line = replace(line, capture=capture.file, tool=capture.tool, free_source="estimated")
    laps = [*capture.laps_before_ms, *capture.laps_after_ms]
    known_ms = [*(median(laps) for _ in laps[:1]), line.measured.before_ms]
    return [line, *(replace(line, free_ms=ms, free_source="given") for ms in known_ms)]


def by_whatif(
    line: CheckedPrediction, ask: Ask, capture: Opening, captured_ms: float
) -> CheckedPrediction:
    """The line with the answer of whatif, or the reason why there is none.

    `captured_ms` is the program's own step while captured.
    """
    assert line.change
    try:
        found = ask(capture, line.change, line.free_ms)
        parts = parts_of(captured_ms, found.captured_ms)
        if parts > 1 and line.free_ms:
            found = ask(capture, line.change, line.free_ms / parts)
    except ValueError as error:
        return replace(line, reason=str(error))
    if not parts:
        return replace(line, reason="the capture's steps are not the program's")
    (prediction,) = found.predictions
    predicted, reason = predicted_of(prediction), why_not(found, prediction)
    predicted = replace(predicted, step_ms=times(predicted.step_ms, parts))
    return replace(
        line,
        free_ms=line.free_ms or found.free.ms * parts,
        free_source=found.free.source,
        predicted=predicted,
        reason=reason,
        inside=None if reason else is_inside(predicted, line.measured),
    )


def parts_of(step_ms: float, found_ms: float) -> int:
    """Number of steps found in a capture that make one of the program's, or 0.

    A program whose step trains twice has two.
    """
    if 1 / SAME_STEP < found_ms / step_ms < SAME_STEP:
        return 1
    parts = round(step_ms / found_ms)
    return parts if parts > 1 and abs(step_ms / found_ms / parts - 1) < SAME_PARTS else 0


def times(step_ms: Interval, parts: int) -> Interval:
    return Interval(step_ms.middle * parts, step_ms.low * parts, step_ms.high * parts)
