import pytest
import torch

from configs.model import ModelConfig
from kernels.fused_model import make_model
from profiling.shared.hardware import PEAKS, mfu, peak_bytes_per_s, peak_flops_per_s, peaks_of


@pytest.mark.parametrize(
    "name, dtype, tflops, gb_per_s",
    [
        ("NVIDIA B200", "bfloat16", 2250, 8000),
        ("NVIDIA GB200", "bfloat16", 2500, 8000),
        ("NVIDIA H200", "bfloat16", 989.4, 4800),
        ("NVIDIA H200 NVL", "bfloat16", 835.5, 4800),
        ("NVIDIA GH200 480GB", "bfloat16", 989.4, 4000),
        ("NVIDIA H100 80GB HBM3", "float16", 989.4, 3350),
        ("NVIDIA H100 PCIe", "bfloat16", 756, 2000),
        ("NVIDIA H100 NVL", "bfloat16", 835.5, 3900),
        ("NVIDIA A100-SXM4-40GB", "bfloat16", 312, 1555),
        ("A100-SXM4-40GB", "bfloat16", 312, 1555),  # of older drivers
        ("NVIDIA A100-PCIE-40GB", "bfloat16", 312, 1555),
        ("NVIDIA A100 80GB PCIe", "bfloat16", 312, 1935),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312, 2039),
        ("NVIDIA A100-SXM4-80GB", "float32", 19.5, 2039),
        ("NVIDIA A40", "bfloat16", 149.7, 696),
        ("NVIDIA A10", "bfloat16", 125, 600),
        ("NVIDIA A10G", "bfloat16", 70, 600),
        ("NVIDIA L4", "bfloat16", 121, 300),
        ("NVIDIA L40", "bfloat16", 181.05, 864),
        ("NVIDIA L40S", "bfloat16", 362.05, 864),
        ("NVIDIA L40S", "float32", 91.6, 864),
        ("NVIDIA RTX A6000", "bfloat16", 154.8, 768),
        ("Tesla T4", "float16", 65, 320),
        ("Tesla V100-SXM2-16GB", "float16", 125, 900),
        ("Tesla V100-PCIE-16GB", "float16", 112, 900),
        ("Tesla V100-DGXS-32GB", "float16", 125, 900),
        ("AMD Instinct MI300X", "bfloat16", 1307.4, 5300),
        ("AMD Instinct MI300X", "tf32", 653.7, 5300),
        ("AMD Instinct MI300X", "float32", 163.4, 5300),
        ("AMD Instinct MI210", "float16", 181, 1638.4),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2, 1008),
        ("GeForce RTX 3090", "bfloat16", 71, 936),
    ],
)
def test_peaks_of_known_devices(name, dtype, tflops, gb_per_s):
    assert peak_flops_per_s(name, dtype) == pytest.approx(tflops * 1e12)
    assert peak_bytes_per_s(name) == pytest.approx(gb_per_s * 1e9)


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "mps",
        "NVIDIA GeForce GTX 1080",
        "NVIDIA T400 4GB",
        "NVIDIA L400",
        "NVIDIA RTX A1000 Laptop GPU",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA H20",
        "NVIDIA GH200 144G HBM3e",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",  # a slice of one
        "NVIDIA B300 SXM6 AC",
        "Tesla V100-SXM3-32GB",
    ],
)
def test_an_unknown_device_has_no_peaks_and_never_a_guess(name):
    assert peak_flops_per_s(name, "float32") is None and peak_flops_per_s(name, "float16") is None
    assert peak_bytes_per_s(name) is None
    assert mfu(10**8, 1e6, name, "float32", 1) is None


@pytest.mark.parametrize("name", ["Tesla T4", "Tesla V100-SXM2-16GB", "Tesla V100S-PCIE-32GB"])
def test_what_knows_no_bfloat16_has_no_peak_at_it(name):
    assert peak_flops_per_s(name, "bfloat16") is None
    assert mfu(10**8, 1e6, name, "bfloat16", 1) is None
    assert peak_bytes_per_s(name) and peak_flops_per_s(name, "float16")


def test_figures_are_of_one_kind():
    """A slip of a thousand, or of a column, would stand out."""
    for name, peaks in PEAKS.items():
        assert 1.5 < peaks.matrix_tflops / peaks.float32_tflops < 35, name
        assert 40 < peaks.matrix_tflops * 1e3 / peaks.memory_gb_per_s < 450, name
    assert peaks_of("NVIDIA H200") == peaks_of("H200")


def test_mfu_is_a_share_of_all_devices_peak():
    with torch.device("meta"):
        model = make_model(ModelConfig(), 65)
    tokens_per_s = 64 * 256 / 7.55e-3  # the main experiment at 7.55 ms an iteration
    share = mfu(model.flops_per_token(), tokens_per_s, "NVIDIA H200", "bfloat16", 1)
    assert share == pytest.approx(1.16e12 / 7.55e-3 / 989.4e12, rel=0.02)
    two = mfu(model.flops_per_token(), 2 * tokens_per_s, "NVIDIA H200", "bfloat16", 2)
    assert two == pytest.approx(share)


def test_float32_on_matrix_units_runs_at_half_the_rate_of_bfloat16():
    assert peak_flops_per_s("NVIDIA A100-SXM4-80GB", "tf32") == 156e12
    assert peak_flops_per_s("Tesla T4", "tf32") is None
    assert peak_flops_per_s("AMD Instinct MI210", "tf32") is None
