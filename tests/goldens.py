"""Golden JSON of every fixture: the output of `report`, `compare` and `ab` for the same input.

    python -m tests.goldens        writes tests/goldens anew; the commit says which field changed

Made through the command line, as a user gets it, so that nothing internal is frozen. WHOLE reports
stand as they are, the others as their outlines, all in one file.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from pathlib import Path
from unittest.mock import patch

from profiling import __main__ as profiling
from profiling.verbs import ab
from tests.helpers.folders import write_run
from tests.helpers.pace import paces
from tests.paths import CAPTURES, GOLDENS

WHOLE = ("slow_eager.sqlite", "flash_compile.sqlite", "flash_eager.trace.json")
PAIRS = {
    "eager": ("slow_eager.sqlite.gz", "flash_eager.sqlite.gz"),
    "compile": ("slow_compile.sqlite.gz", "flash_compile.sqlite.gz"),
    "tools": ("flash_eager.sqlite.gz", "flash_eager.trace.json.gz"),
    "attribute": ("flash_attr_true.sqlite.gz", "flash_attr_false.sqlite.gz"),
    "metrics": ("flash_compile.sqlite.gz", "flash_metrics.sqlite.gz"),
}
PROCESS_MS = {"slow": (6.61, 6.65, 6.63), "flash": (5.42, 5.40, 5.45), "math": (6.60, 6.70, 6.66)}
WORDS = ["config/shakespeare_char_cpu.yaml"]  # `ab` times an iteration of it


def main() -> None:
    for path in GOLDENS.glob("*.json"):
        path.unlink()
    for name, made in make(*VERBS).items():
        text = re.sub(r"\[\n\s+(\S+),\n\s+(\S+)\n\s+\]", r"[\1, \2]", json.dumps(made, indent=1))
        (GOLDENS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def make(*verbs: str) -> dict[str, object]:
    """Name -> content of the golden JSON of these verbs. Works in a temporary folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            shutil.copytree(CAPTURES, "captures")
            return {name: made for verb in verbs for name, made in VERBS[verb]().items()}
        finally:
            os.chdir(before)


def reports() -> dict[str, object]:
    captures = [*Path("captures").glob("*.sqlite.gz"), *Path("captures").glob("*.trace.json.gz")]
    made = {path.name.removesuffix(".gz"): json_of("report", str(path)) for path in captures}
    others = {name: outline(made[name]) for name in sorted(made) if name not in WHOLE}
    return {f"report-{name}": made[name] for name in WHOLE} | {"report-outlines": others}


def outline(value: object) -> object:
    """Stands for a report: its fields, and of lists of more than two rows their columns."""
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if not isinstance(value, list) or len(value) < 3 or isinstance(value[0], str):
        return value
    if not isinstance(value[0], dict):
        return outline_of_column(value)
    columns = dict.fromkeys(key for row in value for key in row)
    made = {key: outline_of_column([row.get(key) for row in value]) for key in columns}
    return {"rows": len(value)} | made


def outline_of_column(values: list) -> object:
    """Sum and sum weighted by place, which tells rows that change places; of texts their CRC."""
    if all(isinstance(value, int | float) for value in values):
        return [sum(values), sum(place * value for place, value in enumerate(values, 1))]
    assert not any(isinstance(value, float) for value in values), "a CRC tells rounding, too"
    return zlib.crc32(json.dumps(values).encode())


def comparisons() -> dict[str, object]:
    made = {}
    for name, (one, other) in PAIRS.items():
        words = [f"captures/{one}", f"captures/{other}", "--force"]
        made[f"compare-{name}"] = json_of("compare", *words)
    for attention in ("slow", "flash"):
        folder = write_run(Path(f"out-{attention}"), attention)
        (folder / "environment.json").write_text(json.dumps({"packages": {"torch": "2.11.0"}}))
    made["compare-runs"] = json_of("compare", "out-slow", "out-flash")
    for attention in ("slow", "flash"):
        place_capture(Path(f"out-{attention}"), attention)
    made["compare-runs-with-captures"] = json_of("compare", "out-slow", "out-flash")
    return made


def experiments() -> dict[str, object]:
    """JSON of `ab` for experiments whose processes have all run, so that it only judges them."""
    made = {}
    for name, labels in {"captured": ["slow", "flash"], "bare": ["slow", "flash", "math"]}.items():
        folder = Path(f"ab-{name}")
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(record(labels)))
        flags = ["--repeats", "3", "--steps", "40", "--out", str(folder)]
        if name == "bare":
            flags.append("--no-capture")
        for label in labels if name == "captured" else ():
            place_capture(folder / "captures" / label, label)
        words = [*WORDS, f"attention={','.join(labels)}", *flags]
        with patch.object(ab, "check_on_this_machine", paces):
            made[f"ab-{name}"] = json_of("ab", *words)
    return made


def place_capture(folder: Path, attention: str) -> None:
    (folder / "profile").mkdir(parents=True)
    shutil.copy(f"captures/{attention}_eager.sqlite.gz", folder / "profile" / "nsys.sqlite.gz")


def record(labels: list[str]) -> dict[str, object]:
    """Content of results.json as `ab` leaves it when the last process has ended."""
    order = [[*labels, *labels[::-1], *labels][i] for i in range(3 * len(labels))]
    times = {label: iter(PROCESS_MS[label]) for label in labels}
    runs = []
    for number, label in enumerate(order):
        ms = next(times[label])
        step_ms = [ms, ms * 1.01, ms * 0.99, ms * 1.002]
        runs.append(
            {
                "number": number,
                "label": label,
                "command": ["-u", "train.py", f"attention={label}"],
                "folder": f"runs/{number + 1:02d}-{label}",
                "wall_s": 20.5,
                "tokens_per_iteration": 16384,
                "iterations": [60, 70, 80, 90],
                "step_ms": step_ms,
                "mean_ms": step_ms,
            }
        )
    return {
        "schema_version": 1,
        "factor": {"key": "attention", "values": labels, "labels": labels},
        "words": WORDS,
        "steps": 40,
        "warm_up": 50,
        "log_interval": 10,
        "runs": runs,
        "configs": {label: {"attention": label, "batch_size": 64} for label in labels},
        "in_force": {label: {"device": "NVIDIA H200"} for label in labels},
        "environment": {"packages": {"torch": "2.11.0"}},
    }


def json_of(verb: str, *words: str) -> object:
    """Content of the JSON that the verb writes with --json."""
    before = sys.argv
    sys.argv = ["profiling", verb, *words, "--json", "written.json"]
    try:
        profiling.main()
    except SystemExit as end:
        assert not end.code, f"{verb} {' '.join(words)}: exit code {end.code}"
    finally:
        sys.argv = before
    return json.loads(Path("written.json").read_text(encoding="utf-8"))


VERBS = {"report": reports, "compare": comparisons, "ab": experiments}


if __name__ == "__main__":
    main()
