"""Frames a second of the report's timeline in a headless Chromium, while it zooms and moves.

    python -m benchmarks timeline_frames [KEY=VALUE ...]

A capture of the tests is repeated until its window has so many events, and the page is opened. For
some seconds the view then zooms in a thousandfold and out again, four times, while it moves across
the window; other rounds move a view of a tenth of the window, and draw the whole of it. A frame
counts when the browser asks for the next one; the rate by the median leaves out those that other
programs held up. Also printed: the milliseconds of script that a frame took, of which the median
says more than the rest on a machine that is busy, and the bytes of the page's data. Needs selenium,
chromium and chromedriver; the GPU is not used.
"""

import json
import os
import re
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles

from benchmarks import repeat_capture
from benchmarks.chromium import chromium
from benchmarks.measuring import PROJECT, Keys, key
from profiling.analysis.capture import open_report
from profiling.report.capture.document import report_document
from profiling.report.renderers.page import page

CAPTURE = PROJECT / "tests" / "captures" / "slow_eager.sqlite.gz"
KERNELS, EVENTS = 10_302, 48_076  # in that capture
DATA = re.compile(r'<script type="application/json" id="timeline-data">(.*?)</script>', re.S)
ROUNDS = {
    "zooming": "const span = last * 10 ** (-3 * Math.abs(Math.sin(4 * Math.PI * share)))",
    "moving": "const span = last / 10",
    "the whole window": "const span = last",
}
ROUND = """
const [seconds, done] = arguments, {events, view, setView} = timeline, last = events.last;
const times = [], drawn = [];
let begin = null;
const frame = (now) => {
  begin ??= now;
  const share = (now - begin) / 1000 / seconds;
  if (share >= 1) return done([times, drawn]);
  %s;
  const middle = last * (0.1 + 0.8 * share);
  setView(middle - span / 2, middle + span / 2);
  times.push(now);
  drawn.push(view.drawMs);
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""


@dataclass
class FramesConfig(Keys):
    events: int = key(100_000, "of the timeline, about: a multiple of 48,076", least=1000)
    seconds: int = key(8, "of each round", least=1)
    width: int = key(1440, "of the window, px", least=320)


def main(config: FramesConfig) -> None:
    with tempfile.TemporaryDirectory(prefix="timeline-frames-") as name:
        file = Path(name) / "page.html"
        count, size = write_page(config.events, file)
        print(f"{count:,} events, {size / 1e6:.2f} MB of data, {size / count:.1f} bytes an event")
        with chromium(config.width, 900) as driver:
            driver.set_script_timeout(config.seconds + 60)
            driver.get(file.as_uri())
            driver.execute_script("document.getElementById('timeline').scrollIntoView()")
            print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {config.width} px\n")
            print("| round | frames a second | by the median | script, ms | 95th percentile |")
            print("|---|---:|---:|---:|---:|")
            for what, span in ROUNDS.items():
                times, drawn = driver.execute_async_script(ROUND % span, config.seconds)
                apart_ms = [after - before for before, after in pairwise(times)]
                rates = f"{1000 / fmean(apart_ms):.1f} | {1000 / median(apart_ms):.1f}"
                print(f"| {what} | {rates} | {median(drawn):.2f} | {late(drawn):.2f} |")


def late(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


def write_page(events: int, file: Path) -> tuple[int, int]:
    """Write the page of a capture with about `events` events: (its events, bytes of their JSON)."""
    capture = file.with_suffix(".sqlite")
    kernels = KERNELS * max(1, round(events / EVENTS))
    repeat_capture.main(repeat_capture.RepeatConfig(str(CAPTURE), str(capture), kernels))
    opened = open_report(capture)
    text = page(report_document(opened.report, opened.step_events))
    file.write_text(text, encoding="utf-8")
    found = DATA.search(text)
    if found is None:
        raise ValueError(f"{capture.name}: its page has no timeline")
    return sum(row["count"] for row in json.loads(found[1])["rows"]), len(found[1])
