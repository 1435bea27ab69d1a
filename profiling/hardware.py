"""What the hardware could do at best: the denominators of MFU and rooflines.

Dense peaks from the vendors' data sheets; a device that is not listed has none (null), never a
guess. float32 is plain float32, without TF32, as the trainer runs it. Imports no torch: trainer and
analysis both read it.
"""

import re

# (pattern of torch.cuda.get_device_name, TFLOP/s in bfloat16 and float16 on matrix units,
# TFLOP/s in float32, GB/s of device memory)
PEAKS = (
    (r"B200", 2250.0, 75.0, 8000.0),
    (r"H200", 989.4, 66.9, 4800.0),
    (r"H100.*(PCIe|NVL)", 756.0, 51.2, 2000.0),
    (r"H100", 989.4, 66.9, 3350.0),
    (r"A100", 312.0, 19.5, 1555.0),
    (r"L40S", 362.1, 91.6, 864.0),
    (r"L4\b", 121.0, 30.3, 300.0),
    (r"A10\b|A10G", 125.0, 31.2, 600.0),
    (r"RTX A6000", 154.8, 38.7, 768.0),
    (r"RTX 4090", 165.2, 82.6, 1008.0),
    (r"RTX 3090(?! Ti)", 71.0, 35.6, 936.0),
    (r"V100", 125.0, 15.7, 900.0),
    (r"T4\b", 65.0, 8.1, 320.0),
)
NO_BFLOAT16 = r"V100|T4\b"


def peak_flops_per_s(device_name: str, dtype: str) -> float | None:
    """FLOP/s of one device at `dtype` (float32, bfloat16, float16); None where it is not known."""
    if dtype == "bfloat16" and re.search(NO_BFLOAT16, device_name):
        return None
    peaks = peaks_of(device_name)
    return (peaks[1] if dtype == "float32" else peaks[0]) * 1e12 if peaks else None


def peak_bytes_per_s(device_name: str) -> float | None:
    """Bandwidth of the device's memory in byte/s; None where it is not known."""
    peaks = peaks_of(device_name)
    return peaks[2] * 1e9 if peaks else None


def peaks_of(device_name: str) -> tuple[float, float, float] | None:
    for pattern, *peaks in PEAKS:
        if re.search(pattern, device_name):
            return tuple(peaks)
    return None


def mfu(
    flops_per_token: int, tokens_per_s: float, device_name: str, dtype: str, devices: int
) -> float | None:
    """Model FLOP utilisation, 0 to 1 (arxiv.org/abs/2204.02311); None without a known peak."""
    peak = peak_flops_per_s(device_name, dtype)
    return flops_per_token * tokens_per_s / (peak * devices) if peak else None
