import pytest
import torch

from configs.model import ModelConfig
from model import GPT
from profiling.hardware import mfu, peak_flops_per_s


@pytest.mark.parametrize(
    "name, dtype, tflops",
    [
        ("NVIDIA H200", "bfloat16", 989.4),
        ("NVIDIA H100 80GB HBM3", "float16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312.0),
        ("NVIDIA A100-SXM4-80GB", "float32", 19.5),
        ("NVIDIA L4", "bfloat16", 121.0),
        ("NVIDIA L40S", "bfloat16", 362.1),
        ("Tesla T4", "float16", 65.0),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2),
    ],
)
def test_peaks_of_known_devices(name, dtype, tflops):
    assert peak_flops_per_s(name, dtype) == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("Tesla T4", "bfloat16"),
        ("Tesla V100-SXM2-16GB", "bfloat16"),
        ("cpu", "float32"),
        ("mps", "float32"),
        ("NVIDIA GeForce GTX 1080", "float16"),
        ("NVIDIA T400 4GB", "float16"),
        ("NVIDIA L400", "float16"),
    ],
)
def test_an_unknown_peak_is_none_and_never_a_guess(name, dtype):
    assert peak_flops_per_s(name, dtype) is None
    assert mfu(10**8, 1e6, name, dtype, 1) is None


def test_mfu_is_a_share_of_all_devices_peak():
    with torch.device("meta"):
        model = GPT(ModelConfig(), 65)
    tokens_per_s = 64 * 256 / 7.55e-3  # the main experiment at 7.55 ms an iteration
    share = mfu(model.flops_per_token(), tokens_per_s, "NVIDIA H200", "bfloat16", 1)
    assert share == pytest.approx(1.16e12 / 7.55e-3 / 989.4e12, rel=0.02)
    two = mfu(model.flops_per_token(), 2 * tokens_per_s, "NVIDIA H200", "bfloat16", 2)
    assert two == pytest.approx(share)
