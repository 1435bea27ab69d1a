"""What the name of a CUDA kernel tells. Imports nothing: trainer and analysis both read it."""

# a part of the kernel's name -> the attention backend that launches it
ATTENTION_KERNELS = {
    "cudnn_generated_fort_native_sdpa": "cudnn",
    "flash_fwd": "flash",
    "flash_bwd": "flash",
    "fmha_cutlass": "efficient",
    "fused_flex_attention": "flex",
    "flex_attention": "flex",
}


def fused_attention(names: list[str]) -> dict[str, list[str]]:
    """The fused attention kernels among `names`, by backend; empty for slow and math."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        for part, backend in ATTENTION_KERNELS.items():
            if part in name:
                found.setdefault(backend, []).append(name)
                break
    return found
