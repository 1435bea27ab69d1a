"""Events of a Chrome trace in the layout that JAX's profiler writes."""

from typing import Any

Event = dict[str, Any]  # as json.dump takes it

GPU_PID, HOST_PID, PYTHON, STREAM, MODULES = 1, 701, 2884157811, 13, 99
DETAILS = "regs:32 static_shared:16 dynamic_shared:1024 grid:8,2,1 block:128,1,1 occ_pct:100"
COPIED = "kind_src:pageable kind_dst:device size:65536 dest:0 async:1"


def named(what: str, name: str, pid: int, tid: int | None = None) -> Event:
    row = {"ph": "M", "pid": pid, "name": what, "args": {"name": name}}
    return row if tid is None else row | {"tid": tid}


def event(
    name: str, ts: float, dur: float, pid: int = HOST_PID, tid: int = PYTHON, **args: Any
) -> Event:
    row = {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name}
    return row | ({"args": args} if args else {})


def on_gpu(name: str, ts: float, dur: float, number: int, **args: Any) -> Event:
    args = {"correlation_id": str(number), "context_id": "$$1"} | args
    return event(name, ts, dur, GPU_PID, STREAM, **args)


def steps_of_jax(annotated: bool = True, gpu: bool = True) -> list[Event]:
    """Six steps of 1 ms: a copy of the batch, a product and an element-wise kernel."""
    events: list[Event] = [
        named("process_name", "/device:GPU:0", GPU_PID),
        named("thread_name", "Stream #13(Compute,MemcpyH2D)", GPU_PID, STREAM),
        named("thread_name", "XLA Modules", GPU_PID, MODULES),
    ]
    events = events if gpu else []
    events += [
        named("process_name", "/host:CPU", HOST_PID),
        named("thread_name", "python", HOST_PID, PYTHON),
    ]
    for step in range(6):
        at, number = 1000.0 * step, 10 * step
        if annotated:
            events.append(event("train", at, 990, step_num=str(step)))
        events += [
            event("$train.py:7 main", at + 1, 980),
            event("PjitFunction(step)", at + 10, 300),
        ]
        if not gpu:
            events.append(event("dot.2", at + 20, 800, tid=5, hlo_op="dot.2", hlo_module="jit_f"))
            continue
        events += [
            event("cuMemcpyHtoDAsync_v2", at + 20, 10, correlation_id=str(number + 1)),
            event("gemm_fusion_dot_3", at + 40, 10, correlation_id=str(number + 2)),
            event("cuLaunchKernel", at + 60, 10, correlation_id=str(number + 3)),
            on_gpu("MemcpyH2D", at + 40, 20, number + 1, memcpy_details=COPIED),
            on_gpu("gemm_fusion_dot_3", at + 70, 850, number + 2, kernel_details=DETAILS),
            on_gpu("loop_add_fusion", at + 921, 50, number + 3, kernel_details=DETAILS),
            on_gpu("Memset", at + 972, 2, number + 9, Memset_details="value:0 num_bytes:4"),
            event("jit_step", at + 40, 800, GPU_PID, MODULES),
        ]
    return [*events, {}]
