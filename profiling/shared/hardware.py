"""Peak rates of the hardware: the denominators of MFU and rooflines.

They are dense peaks from the vendors' data sheets; a device that is not listed has none (null),
never a guess. float32 is plain float32, without TF32, as the trainer runs it. Imports no torch:
trainer and analysis both read it.
"""

import re
from typing import NamedTuple, TypeVar

Row = TypeVar("Row")


class Peaks(NamedTuple):
    matrix_tflops: float  # TFLOP/s in bfloat16 and float16 on matrix units, summed in float32
    float32_tflops: float
    memory_gb_per_s: float
    bfloat16: bool = True  # the matrix units take bfloat16
    tf32: bool = True  # they take float32 rounded to 19 bits, at half the rate of bfloat16


# Whole names as torch.cuda.get_device_name and nsys spell them, less the maker's and the brand's:
# laptops, cards of another form or memory, and slices of a GPU (MIG) bear longer ones.
PEAKS = {
    r"GB200": Peaks(2500.0, 80.0, 8000.0),
    r"B200": Peaks(2250.0, 75.0, 8000.0),
    r"H200": Peaks(989.4, 66.9, 4800.0),
    r"H200 NVL": Peaks(835.5, 60.0, 4800.0),
    r"GH200 (120|480)GB": Peaks(989.4, 66.9, 4000.0),  # of the CPU's memory; the GPU has 96 GB
    r"H100 80GB HBM3": Peaks(989.4, 66.9, 3350.0),
    r"H100 PCIe": Peaks(756.0, 51.2, 2000.0),
    r"H100 NVL": Peaks(835.5, 60.0, 3900.0),
    r"A100-(SXM4|PCIE)-40GB": Peaks(312.0, 19.5, 1555.0),
    r"A100-SXM4-80GB": Peaks(312.0, 19.5, 2039.0),
    r"A100 80GB PCIe": Peaks(312.0, 19.5, 1935.0),
    r"A40": Peaks(149.7, 37.4, 696.0),
    r"A30": Peaks(165.0, 10.3, 933.0),
    r"A10": Peaks(125.0, 31.2, 600.0),
    r"A10G": Peaks(70.0, 35.0, 600.0),
    r"L40S": Peaks(362.05, 91.6, 864.0),
    r"L40": Peaks(181.05, 90.5, 864.0),
    r"L4": Peaks(121.0, 30.3, 300.0),
    r"RTX A6000": Peaks(154.8, 38.7, 768.0),
    r"RTX 5090": Peaks(209.5, 104.8, 1792.0),
    r"RTX 4090": Peaks(165.2, 82.6, 1008.0),
    r"RTX 3090": Peaks(71.0, 35.6, 936.0),
    r"V100-(SXM2|DGXS)-(16|32)GB": Peaks(125.0, 15.7, 900.0, bfloat16=False),
    r"V100-PCIE-(16|32)GB": Peaks(112.0, 14.0, 900.0, bfloat16=False),
    r"V100S-PCIE-32GB": Peaks(130.0, 16.4, 1134.0, bfloat16=False),
    r"T4": Peaks(65.0, 8.1, 320.0, bfloat16=False),
    r"MI300X": Peaks(1307.4, 163.4, 5300.0),
    r"MI210": Peaks(181.0, 22.6, 1638.4, tf32=False),
}
BRAND = re.compile(r"^((NVIDIA )?(GeForce |Tesla )?|AMD Instinct )")

# GB/s between host and device, each way
LINKS = {
    r"B200|H200( NVL)?|H100 (80GB HBM3|PCIe|NVL)|RTX 5090|MI300X": 63.0,
    r"A100.*|A40|A30|A10G?|L40S?|RTX (A6000|4090|3090)": 31.5,
    r"L4|MI210": 31.5,
    r"V100.*|T4": 15.75,
}

# GB/s of a GPU's links to other GPUs, NVLink or Infinity Fabric, each way: half of what data sheets
# call bidirectional
GPU_LINKS = {
    r"GB200|B200": 900.0,
    r"H200|GH200 (120|480)GB|H100 80GB HBM3": 450.0,
    r"H200 NVL": 450.0,
    r"H100 NVL|A100-SXM4-(40|80)GB": 300.0,
    r"V100-SXM2-(16|32)GB": 150.0,
    r"MI300X": 448.0,
}

# GB/s of network that a GPU has in its vendor's own machine, each way: DGX and HGX, a NIC for each
NETWORKS = {
    r"B200|H200|H100 80GB HBM3|MI300X": 50.0,
    r"A100-SXM4-(40|80)GB": 25.0,
}


class Multiprocessor(NamedTuple):
    """Capacity of one SM of a GPU: how much it holds at once."""

    warps: int
    blocks: int
    shared_kib: int


# by compute capability: table "Technical Specifications" of the CUDA C++ Programming Guide
MULTIPROCESSORS = {
    "7.0": Multiprocessor(64, 32, 96),
    "7.5": Multiprocessor(32, 16, 64),
    "8.0": Multiprocessor(64, 32, 164),
    "8.6": Multiprocessor(48, 16, 100),
    "8.7": Multiprocessor(48, 16, 164),
    "8.9": Multiprocessor(48, 24, 100),
    "9.0": Multiprocessor(64, 32, 228),
    "10.0": Multiprocessor(64, 32, 228),
    "10.3": Multiprocessor(64, 32, 228),
    "12.0": Multiprocessor(48, 24, 100),
}
WARP = 32  # threads
# registers, the same since 7.0: an SM has four parts, each gives them to warps 256 at a time
PARTS_OF_SM, REGISTERS_OF_PART, REGISTERS_AT_ONCE = 4, 16384, 256
SHARED_AT_ONCE = 128  # bytes
SHARED_OF_SYSTEM = 1024  # bytes of each block, from 8.0 on


def resident_blocks(
    capability: str, threads: int, registers: int, shared_bytes: int
) -> dict[str, int]:
    """Number of blocks of a kernel that an SM can hold at once, by each limit; the smallest counts.

    `capability` is a key of MULTIPROCESSORS, `registers` are per thread, `shared_bytes` and
    `threads` per block.
    """
    sm = MULTIPROCESSORS[capability]
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    system = SHARED_OF_SYSTEM if int(capability.split(".")[0]) >= 8 else 0
    shared = -(-(shared_bytes + system) // SHARED_AT_ONCE) * SHARED_AT_ONCE
    return {
        "warps": sm.warps // warps,
        "registers": REGISTERS_OF_PART // of_warp * PARTS_OF_SM // warps if of_warp else sm.blocks,
        "shared memory": sm.shared_kib * 1024 // shared if shared else sm.blocks,
        "blocks": sm.blocks,
    }


def peak_flops_per_s(device_name: str, dtype: str) -> float | None:
    """Peak FLOP/s of one device at `dtype` (float32, tf32, bfloat16, float16), or None if unknown.

    tf32 is float32 on matrix units, at half of bfloat16's rate.
    """
    peaks = peaks_of(device_name)
    if peaks is None or (dtype in ("bfloat16", "tf32") and not peaks.bfloat16):
        return None
    if dtype == "tf32" and not peaks.tf32:
        return None
    if dtype == "tf32":
        return peaks.matrix_tflops / 2 * 1e12
    return (peaks.float32_tflops if dtype == "float32" else peaks.matrix_tflops) * 1e12


def peak_bytes_per_s(device_name: str) -> float | None:
    """Bandwidth of the device's memory in byte/s, or None if unknown."""
    peaks = peaks_of(device_name)
    return peaks.memory_gb_per_s * 1e9 if peaks else None


def link_bytes_per_s(device_name: str) -> float | None:
    """Bandwidth between host and device, each way, in byte/s, or None if unknown.

    It is that of 16 lanes of the PCI Express generation in the data sheet: 15.75, 31.5, 63 GB/s.
    """
    return bytes_per_s(LINKS, device_name)


def gpu_link_bytes_per_s(device_name: str) -> float | None:
    """Bandwidth of a GPU's own links to other GPUs, each way, in byte/s, or None if unknown."""
    return bytes_per_s(GPU_LINKS, device_name)


def network_bytes_per_s(device_name: str) -> float | None:
    """Network bandwidth of a GPU in the usual machine of its kind, each way, in byte/s, or None if
    unknown."""
    return bytes_per_s(NETWORKS, device_name)


def bytes_per_s(table: dict[str, float], device_name: str) -> float | None:
    gb_per_s = row_of(table, device_name)
    return gb_per_s * 1e9 if gb_per_s else None


def peaks_of(device_name: str) -> Peaks | None:
    return row_of(PEAKS, device_name)


def row_of(table: dict[str, Row], device_name: str) -> Row | None:
    """The row of the table whose pattern is the device's name without its brand, or None."""
    name = BRAND.sub("", device_name)
    return next((row for pattern, row in table.items() if re.fullmatch(pattern, name)), None)


def mfu(
    flops_per_token: int, tokens_per_s: float, device_name: str, dtype: str, devices: int
) -> float | None:
    """Model FLOP utilisation, 0 to 1 (arxiv.org/abs/2204.02311), or None without a known peak."""
    peak = peak_flops_per_s(device_name, dtype)
    return flops_per_token * tokens_per_s / (peak * devices) if peak else None
