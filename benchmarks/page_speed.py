"""How heavy the pages are and how soon a browser shows them, beside those of another checkout.

    python -m benchmarks page_speed before=CHECKOUT [kernels=1000000] [repeats=5]

- report: of a capture with so many kernels
- compare: of two captures of the tests
- dashboard: of 20 runs with 5,000 rows, of 100 with 1,000

Each checkout makes its own pages, from the same files. Chromium (with chromedriver and selenium)
opens them in turns: ms until the first text is painted, until the first chart is there, until the
page has loaded. Each load has a browser of its own without an inspector, as a reader's first load
has. `again` is one browser, driven by selenium, from its second load on: it has compiled plotly
before. Prints a Markdown table with the ratios of this checkout's medians to the other's.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.chromium import chromium, title_of
from benchmarks.measuring import PROJECT, Keys, key, measure_in_turns

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

CAPTURES = PROJECT / "tests" / "captures"
SIZES = ((20, 5000), (100, 1000))  # runs, rows of each
WINDOW = (1280, 1100)  # px
WATCH = """
new MutationObserver((_, self) => {
  if (!document.querySelector('.main-svg')) return;
  window.firstChart = performance.now();
  self.disconnect();
  const told = setInterval(() => {
    if (!loadTimes()) return;
    document.title = 'loaded ' + JSON.stringify(loadTimes());
    clearInterval(told);
  }, 500);
}).observe(document, { childList: true, subtree: true });
window.loadTimes = () => {
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  const [page] = performance.getEntriesByType('navigation');
  return window.firstChart && paint && page.loadEventEnd ?
    [paint.startTime, window.firstChart, page.loadEventEnd] : null;
};
"""
LONGEST_S = 60


@dataclass
class PageConfig(Keys):
    before: str = key("", "folder of another checkout", needed="the one to compare with")
    kernels: int = key(1_000_000, "of the report's capture", least=1)
    repeats: int = key(5, "loads of each page", least=1)


@dataclass(frozen=True)
class Load:
    """Times of one load, in ms since the navigation began."""

    text_ms: float
    chart_ms: float
    loaded_ms: float


def main(config: PageConfig) -> None:
    checkouts = {"before": Path(config.before).resolve(), "now": PROJECT}
    with tempfile.TemporaryDirectory(prefix="page-speed-") as name, chromium(*WINDOW) as driver:
        folder = Path(name)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n", flush=True)
        print("| page | what | before | now | ratio |\n|---|---|---:|---:|---:|")
        for number, (page, words) in enumerate(commands(config, folder).items()):
            paths = {
                which: make_page(checkout, words, folder / f"{number}-{which}.html")
                for which, checkout in checkouts.items()
            }
            first = {which: partial(load_in_new_browser, path) for which, path in paths.items()}
            loads = {which: partial(load_in_driver, driver, path) for which, path in paths.items()}
            rows = {"MB": [path.stat().st_size / 1e6 for path in paths.values()]}
            rows |= medians(measure_in_turns(first, config.repeats))
            again = medians(
                {w: runs[1:] for w, runs in measure_in_turns(loads, config.repeats + 1).items()}
            )
            rows["chart_ms, again"] = again["chart_ms"]
            for measured, (before, now) in rows.items():
                row = f"{before:.2f} | {now:.2f} | {now / before:.2f}"
                print(f"| {page} | {measured} | {row} |", flush=True)


def medians(runs: dict[str, list[Load]]) -> dict[str, list[float]]:
    """Field of Load -> its median for each entry of `runs`, in their order."""
    names = [each.name for each in fields(Load)]
    return {name: [median(getattr(r, name) for r in of) for of in runs.values()] for name in names}


def commands(config: PageConfig, folder: Path) -> dict[str, list[str]]:
    """Page -> words after `python -m profiling`, without the file to write."""
    capture = folder / "long.sqlite"
    repeat = [f"capture={CAPTURES / 'slow_eager.sqlite.gz'}", f"out={capture}"]
    command = [sys.executable, "-m", "benchmarks", "repeat_capture", *repeat]
    command.append(f"kernels={config.kernels}")
    subprocess.run(command, cwd=PROJECT, stdout=sys.stderr, check=True)
    pair = [str(CAPTURES / f"{name}.sqlite.gz") for name in ("slow_compile", "flash_compile")]
    pages = {
        f"report, {config.kernels:,} kernels": ["report", str(capture), "--html"],
        "compare": ["compare", *pair, "--html"],
    }
    for runs, rows in SIZES:
        folders = [str(write_run(folder / f"{rows}-{run}", run, rows)) for run in range(runs)]
        pages[f"dashboard, {runs} x {rows:,}"] = ["dashboard", *folders, "-o"]
    return pages


def write_run(folder: Path, number: int, rows: int) -> Path:
    """Write a run's folder as the trainer does: one of ten learning rates, a falling loss."""
    folder.mkdir()
    settings = {"dataset": "made up", "learning_rate": (number % 10 + 1) / 1e4, "seed": number}
    settings |= {"batch_size": 8, "block_size": 64, "gradient_accumulation_steps": 1}
    (folder / "config.yaml").write_text(json.dumps(settings))
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as file:
        for row in range(rows):
            loss = 1.4 + 2.8 * math.exp(-row / 400) + 0.01 * math.sin(row * (number + 1))
            values = {"iter": row, "train/loss": loss, "time/step_ms": 5 + math.sin(row) / 9}
            values |= {"perf/tokens_per_s": 3e6 + row, "gpu/power_w": 500 + row % 9}
            values |= {"val/loss": loss + 0.1} if row % 10 == 0 else {}
            file.write(json.dumps(values) + "\n")
    return folder


def make_page(checkout: Path, words: list[str], path: Path) -> Path:
    """Let a checkout write the page, and add a script that measures its load.

    Raises ValueError with the end of the output where it writes no page.
    """
    command = [sys.executable, "-m", "profiling", *words, str(path)]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if not path.exists():
        raise ValueError(f"{checkout}: {' '.join(words[:2])} made no page: {run.stderr[-300:]}")
    begin, script, rest = re.split("(<script[^>]*>)", path.read_text("utf-8"), maxsplit=1)
    path.write_text(begin + script + WATCH + rest, "utf-8")
    return path


def load_in_new_browser(path: Path) -> Load:
    """Load the page in a new browser. Raises ValueError for a page that draws nothing."""
    return Load(*json.loads(title_of(path, "loaded ", *WINDOW, LONGEST_S)))


def load_in_driver(driver: "Chrome", path: Path) -> Load:
    """Load the page in the driver's browser. Raises ValueError for a page that draws nothing."""
    driver.get("about:blank")
    driver.get(path.as_uri())
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        if times := driver.execute_script("return loadTimes()"):
            return Load(*times)
        time.sleep(0.02)
    raise ValueError(f"{path}: no chart within {LONGEST_S} s")
