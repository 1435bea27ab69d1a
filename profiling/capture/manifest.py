"""The manifest beside each capture: what was captured, of what run, and what capturing cost."""

import json
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1


def step_times(laps_ms: Iterable[float]) -> dict[str, Any] | None:
    """Median and the times themselves; None without any."""
    laps_ms = list(laps_ms)
    if not laps_ms:
        return None
    return {"median": statistics.median(laps_ms), "laps": laps_ms}


def overhead_percent(step_ms: dict[str, dict[str, Any] | None]) -> float | None:
    """By how much captured steps are longer than those before and after; None if it is unknown."""
    free = [step_ms[when]["median"] for when in ("before", "after") if step_ms[when]]
    if not free or not step_ms["captured"]:
        return None
    return (step_ms["captured"]["median"] / statistics.fmean(free) - 1) * 100


def next_number(folder: Path, suffix: str) -> int:
    """1, or one more than the last window of which a manifest lies there: after a resume."""
    number = 1
    while (folder / f"window-{number}{suffix}.json").exists():
        number += 1
    return number


def write(path: Path, manifest: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)
