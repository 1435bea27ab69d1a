"""`python -m profiling device`: rates of this machine, compared with a data sheet."""

import json

import pytest
import torch

from cli.errors import user_errors
from profiling.lab import device
from profiling.shared.measurements import Timing
from profiling.verbs import device as device_command

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(device, "COPY_BYTES", {"cpu": 2**22, "cuda": 2**22})
    monkeypatch.setattr(device, "MATRIX", {"cpu": 128, "cuda": 128})


def test_a_cpu_is_measured_and_what_it_has_not_is_said(capsys):
    assert device_command.main(["--device=cpu", "--max-s=0.02"]) == 0
    printed = capsys.readouterr().out
    for word in (
        "copy of memory",
        "matrix product, bfloat16",
        "Ridge",
        "does not exist on a CPU",
        "not known",
    ):
        assert word in printed


def test_json_has_the_figures(capsys):
    device_command.main(["--device=cpu", "--max-s=0.02", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["bandwidth"]["measured"] > 0 and found["bandwidth"]["nominal"] is None
    assert found["empty_launch_ms"] is None and found["l2_bytes"] is None
    assert found["memory_bytes"] > 2**28
    product = found["products"]["float32"]
    ridge = found["ridge_flops_per_byte"]["float32"]
    assert ridge["measured"] == pytest.approx(
        product["measured"] * 1e3 / found["bandwidth"]["measured"]
    )
    assert ridge["nominal"] is None


def test_rates_against_a_data_sheet(monkeypatch):
    """The device copies 4 MiB there and back in 2 us, and has the name of one that is listed."""
    timing = Timing(0.002, (0.002, 0.002), (0.0019, 0.0021), 9, None, True, True)
    monkeypatch.setattr(device, "measure", lambda *_, **__: timing)
    monkeypatch.setattr(device, "device_name", lambda _: "NVIDIA H200")
    said = []
    found = device.measure_device(CPU, 0.01, said.append)
    assert said == ["copy of memory", "matrix product, float32", "matrix product, bfloat16"]
    bandwidth = found.bandwidth
    assert bandwidth.measured == pytest.approx(2 * 2**22 / 2e-6 / 1e9)
    assert bandwidth.nominal == pytest.approx(4800)
    assert bandwidth.percent_of_nominal == pytest.approx(100 * bandwidth.measured / 4800)
    assert bandwidth.uncertainty_percent == pytest.approx(5)
    product = found.products["bfloat16"]
    assert product.measured == pytest.approx(2 * 128**3 / 2e-6 / 1e12)
    assert found.ridge_flops_per_byte["bfloat16"].nominal == pytest.approx(989.4e3 / 4800)


def test_float32_is_measured_without_tf32_and_the_setting_comes_back(monkeypatch):
    seen = []
    timing = Timing(1.0, (1.0, 1.0), (1.0, 1.0), 1, None, True, True)

    def look(*_, **__):
        seen.append(torch.get_float32_matmul_precision())
        return timing

    monkeypatch.setattr(device, "measure", look)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        device.product_timing(CPU, "float32", 0.01)
        assert seen == ["highest"] and torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("flags", ("--device tpu", "--max-s 0", "--what"))
def test_a_bad_flag_is_one_line(flags, capsys):
    with pytest.raises(SystemExit) as end, user_errors():
        device_command.main(flags.split())
    error = capsys.readouterr().err
    assert end.value.code == 2 and flags.split()[0] in error and error.count("\n") == 1


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu(capsys, monkeypatch):
    monkeypatch.undo()  # its true sizes
    device_command.main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["multiprocessors"] > 0 and found["l2_bytes"] > 0 and found["sm_clock_mhz"] > 0
    assert 0 < found["empty_launch_ms"] < 0.02
    for measured in (found["bandwidth"], *found["products"].values()):
        assert measured["measured"] > 0
        if measured["nominal"]:
            assert 30 < measured["percent_of_nominal"] < 101
