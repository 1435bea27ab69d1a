"""What to try next for each verdict, the most promising first. Called by diagnosis.

What is in force already is not advised. It is read off the manifest's configuration and off the
capture itself; a setting of which neither tells counts as not in force.
"""

from collections.abc import Callable
from typing import Any

from profiling.kernel_names import function_name

Facts = dict[str, Any]  # settings in force by their keys, and what NEXT's lines are filled with
Needless = Callable[[Facts], bool]

GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
INDUCTOR = "triton_"


def compiled(facts: Facts) -> bool:
    return bool(facts["compile"])


def graphed(facts: Facts) -> bool:
    return bool(facts["cuda_graphs"])


def impossible_to_graph(facts: Facts) -> bool:
    """Or done: the loss scaler of float16 reads a value in every step."""
    return graphed(facts) or facts["dtype"] == "float16"


def fused_attention(facts: Facts) -> bool:
    return facts["attention"] not in (None, "slow", "math", "auto")


def half_precision(facts: Facts) -> bool:
    return facts["dtype"] in ("bfloat16", "float16")


def no_dropout(facts: Facts) -> bool:
    return facts["dropout"] == 0


def tokens_on_device(facts: Facts) -> bool:
    return facts["token_storage"] == "device"


def no_kernel(facts: Facts) -> bool:
    return facts["kernel"] is None


def no_roofline(facts: Facts) -> bool:
    return facts["family"] is None


def not_compiled(facts: Facts) -> bool:
    return not compiled(facts)


def never(facts: Facts) -> bool:
    return False


GRAPHS = "Replay the step from CUDA graphs: cuda_graphs=true; the host then launches once a phase."
FURTHEST = (
    "Begin with the family furthest from its bound: {family}, {family_ms:.2f} ms a step at "
    "{family_percent:.0f} % of it."
)
KERNEL = (
    "See what holds the largest kernel back: python -m profiling ncu --range none --kernel "
    "{kernel} -- COMMAND"
)
SOURCES = "See what torch.compile fused and what it left: python -m profiling compiled."
BATCH = "Give each launch more to do: a larger batch_size."

# verdict -> (line, when it is of no use)
NEXT: dict[str, tuple[tuple[str, Needless], ...]] = {
    "launch": (
        (GRAPHS, impossible_to_graph),
        ("Fuse kernels, which saves launches: compile=true.", compiled),
        (BATCH, never),
        ("See what is launched one by one: report CAPTURE --html FILE, its timeline.", never),
    ),
    "synchronization": (
        (
            "Find what waits in the gaps' phase: .item(), .cpu(), print(tensor), a copy to the "
            "host, a boolean of a tensor.",
            never,
        ),
        ("Keep values on the GPU and read them every log_interval-th iteration.", never),
        (
            "Copy with pinned memory and non_blocking=True, and wait on an event one step later.",
            never,
        ),
    ),
    "data": (
        ("Keep the tokens on the GPU: token_storage=device.", tokens_on_device),
        (
            "Prepare the next batch while the GPU works: workers, or a thread a step ahead.",
            never,
        ),
        (
            "Copy from pinned memory with non_blocking=True; pageable memory makes the host wait.",
            never,
        ),
    ),
    "cpu": (
        ("Look for Python work in the gaps' phase: logging, hooks, metrics, sleeps.", never),
        ("Move it to another thread or process, or do it every log_interval-th iteration.", never),
        (GRAPHS + " Its queue hides short stalls.", impossible_to_graph),
    ),
    "communication": (
        ("Overlap the all-reduce with backward: buckets, as DistributedDataParallel does.", never),
        (
            "Communicate less often or less: gradient_accumulation_steps, gradients in bfloat16.",
            never,
        ),
        ("Check the link between the GPUs: nvidia-smi topo -m, NCCL_DEBUG=INFO.", never),
    ),
    "gpu_latency": (
        (BATCH, never),
        ("Fuse small kernels: compile=true.", compiled),
        ("Replay them with smaller gaps: cuda_graphs=true.", impossible_to_graph),
        (SOURCES, not_compiled),
    ),
    "gpu_compute": (
        ("Use the matrix units' fast formats: dtype=bfloat16.", half_precision),
        ("Skip what the causal mask hides: attention=flash.", fused_attention),
        (FURTHEST, no_roofline),
        (KERNEL, no_kernel),
        (
            "Arithmetic itself is what remains: a smaller model, a shorter context, or more GPUs.",
            never,
        ),
    ),
    "gpu_memory": (
        (
            "Keep the attention scores out of memory: attention=flash.",
            fused_attention,
        ),
        ("Fuse element-wise work, norms and dropout: compile=true.", compiled),
        ("Move half the bytes: dtype=bfloat16.", half_precision),
        ("dropout=0, where it is not needed, saves its masks.", no_dropout),
        (FURTHEST, no_roofline),
        (SOURCES, not_compiled),
        (KERNEL, no_kernel),
    ),
    "unknown": (("Capture the GPU and the calls: python -m profiling run --preset light.", never),),
}


def advice(verdict: str, report: dict[str, Any]) -> list[str]:
    """The lines of a verdict that are of use to the run of this report."""
    facts = facts_of(report)
    return [line.format_map(facts) for line, needless in NEXT[verdict] if not needless(facts)]


def facts_of(report: dict[str, Any]) -> Facts:
    config = (report["run"] or {}).get("config") or {}
    names = [row["name"] for row in report["kernels"]]
    backend = report["attention_backend"]
    furthest = furthest_family(report["roofline"])
    return {
        "compile": config.get("compile") or any(name.startswith(INDUCTOR) for name in names),
        "cuda_graphs": config.get("cuda_graphs") in (True, "true")
        or any(row["name"].startswith(GRAPH_LAUNCHES) for row in report["api"]),
        "attention": config.get("attention") if backend in (None, "unknown") else backend,
        "dtype": config.get("dtype"),
        "dropout": config.get("dropout"),
        "token_storage": config.get("token_storage"),
        "kernel": function_name(names[0]) if names else None,
        "family": furthest and furthest["family"],
        "family_ms": furthest and furthest["ms"],
        "family_percent": furthest and furthest["percent_of_bound"],
    }


def furthest_family(roofline: dict[str, Any] | None) -> dict[str, Any] | None:
    """The one with the most time above its floor: a slow one that takes no time is no concern."""
    rows = (roofline or {}).get("families", [])
    above = [row for row in rows if row["percent_of_bound"] < 100]
    return max(above, key=lambda row: row["ms"] * (100 - row["percent_of_bound"]), default=None)
