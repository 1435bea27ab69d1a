"""Sides on which other tools, if they are installed, see the bottleneck of a capture.

nsys-ai (its critical_path) reads reports of nsys, HTA (its temporal breakdown) traces of
torch.profiler. Which of their words mean which side was written down before anything was counted.
"""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from profiling.shared.causes import VERDICT

PEER = {"nsys": "nsys-ai", "torch.profiler": "HTA"}
NSYS_AI_SIDES = {
    "gpu-compute-bound": "GPU",
    "cpu-bound": "waits",
    "comm-bound": "communication",
}
LONGEST_S = 120


def side_of(verdict: str) -> str:
    """The side of one of the report's verdicts: GPU, waits, or its own name."""
    if verdict in VERDICT and VERDICT[verdict].host:
        return "waits"
    return "GPU" if verdict.startswith("gpu") else verdict


def side_seen(tool: str, capture: Path) -> str | None:
    """The side that the peer for captures of this tool sees; None: it is not installed."""
    if tool == "nsys" and (program := shutil.which("nsys-ai")):
        return side_by_nsys_ai(program, capture)
    if tool == "torch.profiler" and find_spec("hta"):
        return side_by_hta(capture)
    return None


def side_by_nsys_ai(program: str, capture: Path) -> str:
    words = [program, "skill", "run", "critical_path", str(capture), "--format", "json"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S)
        said: str = json.loads(done.stdout[done.stdout.index("[\n") :])[0]["bound_class"]
    except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError):
        return "no answer"
    return NSYS_AI_SIDES.get(said, said)


def side_by_hta(capture: Path) -> str:
    """The largest of HTA's three shares of the time."""
    from hta.trace_analysis import TraceAnalysis

    try:
        analysis = TraceAnalysis(trace_files={0: str(capture)}, trace_dir=str(capture.parent))
        shares = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    except Exception:  # it raises whatever it meets
        return "no answer"
    sides = {"GPU": "compute", "waits": "idle", "copies": "non_compute"}
    percent = {side: float(shares[f"{name}_time_pctg"]) for side, name in sides.items()}
    return max(percent, key=percent.__getitem__)
