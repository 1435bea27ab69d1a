"""Figures of HolisticTraceAnalysis for one trace, as JSON; for a Python that has it.

python validation/hta_shares.py TRACE
"""

import json
import sys
from pathlib import Path

from hta.trace_analysis import TraceAnalysis


def print_shares(trace: Path) -> None:
    analysis = TraceAnalysis(trace_files={0: str(trace)}, trace_dir=str(trace.parent))
    shares = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    idle, _ = analysis.get_idle_time_breakdown(visualize=False)
    launches = idle[idle["idle_category"] == "kernel_wait"]["idle_time"].sum()
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    named = kernels[(kernels["kernel_type"] == "COMPUTATION") & (kernels["name"] != "others")]
    computing = named.sort_values("sum (us)")
    figures = {
        "compute": float(shares["compute_time(us)"]),
        "copies": float(shares["non_compute_time(us)"]),
        "idle": float(shares["idle_time(us)"]),
        "launches": float(launches),
        "kernel": str(computing.iloc[-1]["name"]) if len(computing) else None,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    print_shares(Path(sys.argv[1]))
