"""What to try next for each verdict of diagnosis, the most promising first."""

NEXT = {
    "launch": (
        "Replay the step from CUDA graphs: compile=true cuda_graphs=true; the host then launches "
        "once a phase.",
        "torch.compile alone fuses kernels and saves launches: compile=true.",
        "A larger batch_size gives each launch more to do.",
    ),
    "synchronization": (
        "Find what waits in the gaps' phase: .item(), .cpu(), print(tensor), a copy to the host, "
        "a boolean of a tensor.",
        "Keep values on the GPU and read them every log_interval-th iteration.",
        "Copy with pinned memory and non_blocking=True, and wait on an event one step later.",
    ),
    "data": (
        "Prepare the next batch while the GPU works: workers, or a thread that is a step ahead.",
        "Copy from pinned memory with non_blocking=True; pageable memory makes the host wait.",
        "Keep the tokens on the GPU: token_storage=device.",
    ),
    "cpu": (
        "Look for Python work in the gaps' phase: logging, hooks, metrics, sleeps.",
        "Move it to another thread or process, or do it every log_interval-th iteration.",
        "Replay the step from CUDA graphs: the queue is then long enough to hide short stalls.",
    ),
    "communication": (
        "Overlap the all-reduce with backward: buckets, as DistributedDataParallel does.",
        "Communicate less often or less: gradient accumulation, gradients in bfloat16.",
        "Check the link between the GPUs: nvidia-smi topo -m, NCCL_DEBUG=INFO.",
    ),
    "gpu_latency": (
        "Give each kernel more to do: a larger batch_size.",
        "Fuse small kernels: compile=true; replay them without gaps: cuda_graphs=true.",
    ),
    "gpu_compute": (
        "Use the matrix units' fast formats: dtype=bfloat16, sizes that are multiples of 64 "
        "(the vocabulary too).",
        "See the roofline for the family that is furthest from its bound.",
        "Arithmetic itself is what remains: a smaller model, a shorter context, or more GPUs.",
    ),
    "gpu_memory": (
        "Fuse element-wise work, norms and dropout: compile=true.",
        "Keep the attention scores out of memory: attention=flash.",
        "Move fewer bytes: dtype=bfloat16, dropout=0 where it is not needed.",
    ),
    "unknown": ("Capture the GPU and the calls: python -m profiling run --preset light.",),
}
