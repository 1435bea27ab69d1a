"""What the hardware could do at best: the denominators of MFU and rooflines.

Dense peaks from the vendors' data sheets, in TFLOP/s; a device that is not listed has none (null),
never a guess. float32 is plain float32, without TF32, as the trainer runs it.
"""

import re

# (pattern of torch.cuda.get_device_name, bfloat16 and float16 matrix units, float32)
PEAK_TFLOPS = (
    (r"B200", 2250.0, 75.0),
    (r"H200", 989.4, 66.9),
    (r"H100.*(PCIe|NVL)", 756.0, 51.2),
    (r"H100", 989.4, 66.9),
    (r"A100", 312.0, 19.5),
    (r"L40S", 362.1, 91.6),
    (r"L4\b", 121.0, 30.3),
    (r"A10\b|A10G", 125.0, 31.2),
    (r"RTX A6000", 154.8, 38.7),
    (r"RTX 4090", 165.2, 82.6),
    (r"RTX 3090(?! Ti)", 71.0, 35.6),
    (r"V100", 125.0, 15.7),
    (r"T4\b", 65.0, 8.1),
)
NO_BFLOAT16 = r"V100|T4\b"


def peak_flops_per_s(device_name: str, dtype: str) -> float | None:
    """FLOP/s of one device at `dtype` (float32, bfloat16, float16); None where it is not known."""
    if dtype == "bfloat16" and re.search(NO_BFLOAT16, device_name):
        return None
    for pattern, half_tflops, float32_tflops in PEAK_TFLOPS:
        if re.search(pattern, device_name):
            return (float32_tflops if dtype == "float32" else half_tflops) * 1e12
    return None


def mfu(
    flops_per_token: int, tokens_per_s: float, device_name: str, dtype: str, devices: int
) -> float | None:
    """Model FLOP utilisation, 0 to 1 (arxiv.org/abs/2204.02311); None without a known peak."""
    peak = peak_flops_per_s(device_name, dtype)
    return flops_per_token * tokens_per_s / (peak * devices) if peak else None
