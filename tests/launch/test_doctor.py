"""python -m profiling doctor: on this machine, and on made-up ones."""

import json
import os
import subprocess
import sys
import types

import pytest

from profiling.launch import doctor
from profiling.tools import nsight
from profiling.verbs import doctor as verb
from tests.paths import PROJECT


def cured(check: doctor.Check) -> bool:
    """Whether what is wrong comes with what to do."""
    return check.severity == "ok" or bool(check.cure)


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """proc(paths and texts): a /proc of that content; the user is not root."""
    monkeypatch.setattr(doctor, "PROC", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def fill(**files: str) -> None:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return fill


@pytest.fixture
def no_nsys(tmp_path, monkeypatch):
    monkeypatch.setattr(nsight, "PLACES", {"nsys": (), "ncu": ()})
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.slow
def test_this_machine_as_json():
    environ = {**os.environ, "WANDB_API_KEY": "planted"}
    done = subprocess.run(
        [sys.executable, "-m", "profiling", "doctor", "--json"],
        cwd=PROJECT,
        env=environ,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    names = "nsys,ncu,py-spy,perf_event_paranoid,GPU counters,driver,torch,CUPTI,NVML,nvtx,W&B,disk"
    assert {*names.split(","), "C++ compiler"} <= set(checks)
    severities = [check["severity"] for check in checks.values()]
    assert found["worst"] == max(severities, key=doctor.SEVERITIES.index)
    assert done.returncode == verb.EXIT_CODES[found["worst"]], done.stderr
    assert checks["W&B"]["finding"].startswith("an API key is present")
    assert "planted" not in done.stdout + done.stderr
    assert checks["nvtx"]["severity"] == "ok"


def test_py_spy_is_found_or_named_with_its_cure(proc, monkeypatch):
    monkeypatch.setattr(doctor.py_spy, "find", lambda: None)
    missing = doctor.stack_samples()
    assert missing.severity == "note" and ".[stack]" in missing.cure
    monkeypatch.setattr(doctor.py_spy, "find", lambda: "/opt/py-spy")
    proc(sys__kernel__yama__ptrace_scope="1\n")
    assert doctor.stack_samples() == doctor.Check("py-spy", "ok", "/opt/py-spy")
    proc(sys__kernel__yama__ptrace_scope="2\n")
    closed = doctor.stack_samples()
    assert "may not read programs" in closed.finding and cured(closed)


def test_without_a_gpu_nothing_that_wants_one_is_wrong(no_nsys, monkeypatch, capsys):
    monkeypatch.setattr(verb, "has_gpu", lambda: False)
    assert verb.main([]) == 1  # for the compiler, which this PATH hides
    lines = capsys.readouterr().out.splitlines()
    for name in ("nsys", "ncu", "GPU counters, driver, CUPTI, NVML"):
        assert any(line.startswith(f"note     {name}: ") for line in lines), name
    assert sum(doctor.NO_GPU in line for line in lines) == 1
    assert not [line for line in lines if line.startswith("error")]
    cannot = "memory, nsys, GPU counters, ncu, power and clocks (no GPU here)"
    assert lines[-1] == f"can profile: torch.profiler; cannot: {cannot}"


def test_the_last_line_says_which_check_is_in_the_way_of_what():
    names = ["nsys", "ncu", "GPU counters", "driver", "torch", "CUPTI", "NVML", "nvtx"]

    def verdict(**severities: str) -> str:
        amiss = {name.replace("_", " "): severity for name, severity in severities.items()}
        found = [doctor.Check(name, amiss.get(name, "ok"), "as made up") for name in names]
        return doctor.summary(found, gpu=True)

    every = "torch.profiler, memory, nsys, GPU counters, ncu, power and clocks"
    assert verdict() == verdict(driver="note") == f"can profile: {every}"
    assert verdict(GPU_counters="warning") == (
        "can profile: torch.profiler, memory, nsys, power and clocks; "
        "cannot: GPU counters, ncu (see GPU counters above)"
    )
    assert "cannot: nsys, GPU counters (see nsys above)" in verdict(nsys="error")
    assert verdict(torch="error", NVML="warning").startswith("can profile: GPU counters; cannot: ")


def test_with_a_gpu_what_is_missing_is_wrong_and_has_a_cure(no_nsys):
    (nsys,) = doctor.nsys(gpu=True)
    assert nsys.severity == "error" and nsys.cure.startswith("install Nsight Systems")
    assert doctor.ncu(gpu=True).severity == "warning" and doctor.ncu(gpu=True).cure


def test_an_importer_without_its_library(no_nsys, tmp_path, monkeypatch):
    folder = tmp_path / "compute" / "host"
    program = folder / "target-linux-x64" / "nsys"
    importer = folder / "linux-desktop-glibc_2_11_3-x64" / "QdstrmImporter"
    error = "loading shared libraries: libdw.so.1: cannot open shared object file: No such file"
    for path, text in ((program, "NVIDIA Nsight Systems version 2025.3.1.90"), (importer, error)):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
    monkeypatch.setitem(nsight.PLACES, "nsys", (str(program),))
    found, broken = doctor.nsys(gpu=True)
    assert (found.severity, found.finding) == ("ok", f"2025.3.1.90 at {program}")
    assert (broken.severity, broken.finding) == (
        "error",
        f"{importer} needs libdw.so.1, which is missing",
    )
    assert broken.cure == "apt-get install libdw1 libelf1"
    importer.write_text("#!/bin/sh\necho 2025.3.1\n")
    assert [check.severity for check in doctor.nsys(gpu=True)] == ["ok", "ok"]
    importer.unlink()
    assert [check.severity for check in doctor.nsys(gpu=True)] == ["ok", "note"]


@pytest.mark.parametrize("only_admin, severity", [("1", "warning"), ("0", "ok")])
def test_who_may_read_counters(proc, monkeypatch, only_admin, severity):
    assert doctor.counters(gpu=True).severity == "note"  # no such file
    proc(driver__nvidia__params=f"RegistryDwords: 1\nRmProfilingAdminOnly: {only_admin}\n")
    check = doctor.counters(gpu=True)
    assert check.severity == severity and cured(check)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert doctor.counters(gpu=True).severity == "ok"
    assert doctor.counters(gpu=False).finding == doctor.NO_GPU


def test_perf_events_and_driver(proc):
    assert doctor.perf_events().severity == doctor.driver(gpu=True).severity == "note"
    proc(sys__kernel__perf_event_paranoid="4\n")
    assert doctor.perf_events().severity == "note" and doctor.perf_events().cure
    proc(sys__kernel__perf_event_paranoid="2\n")
    assert doctor.perf_events() == doctor.Check("perf_event_paranoid", "ok", "2")
    proc(driver__nvidia__version="NVRM version: NVIDIA UNIX Open  580.95.05  Release Build\n")
    assert doctor.driver(gpu=True) == doctor.Check("driver", "ok", "580.95.05")


def test_a_cpu_build_of_torch_beside_a_gpu(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for cuda, message in ((None, "cannot use the GPU"), ("13.0", "finds no usable GPU")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        check, cupti = doctor.torch_build(gpu=True)
        assert check.severity == "error" and message in check.finding and check.cure
        assert cupti.severity == "note"


def test_nvml_and_its_hopper_metrics(monkeypatch):
    class NVMLError(Exception):
        pass

    fake = types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlSystemGetDriverVersion=lambda: "580.95",
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: ("NVIDIA H200", "NVIDIA A100")[handle],
        nvmlGpmQueryDeviceSupport=lambda h: types.SimpleNamespace(isSupportedDevice=int(h == 0)),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    found = list(doctor.nvml(gpu=True))
    assert [check.severity for check in found] == ["ok", "ok", "note"]
    assert (
        "driver 580.95, 2 GPU" in found[0].finding
        and ("A100 does not support it") in found[2].finding
    )

    def no_driver():
        raise NVMLError("Driver Not Loaded")

    fake.nvmlInit = no_driver
    assert [check.severity for check in doctor.nvml(gpu=True)] == ["warning"]
    assert [check.finding for check in doctor.nvml(gpu=False)] == [doctor.NO_GPU]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (absent,) = doctor.nvml(gpu=True)
    assert absent.severity == "warning" and absent.cure == "pip install nvidia-ml-py"


def test_disabled_ranges_a_full_disk_and_no_compiler(no_nsys, monkeypatch, tmp_path):
    monkeypatch.setenv("NVTX_DISABLE", "0")  # any value disables
    assert doctor.nvtx().severity == "error" and doctor.nvtx().cure == "unset NVTX_DISABLE"
    for free, severity in ((1e8, "error"), (2e9, "warning"), (9e9, "ok")):
        usage = types.SimpleNamespace(free=free)
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder, usage=usage: usage)
        check = doctor.disk(tmp_path)
        assert check.severity == severity and cured(check)
    monkeypatch.delenv("CXX", raising=False)
    assert doctor.compiler().severity == "warning" and cured(doctor.compiler())


def test_the_exit_code_is_the_worst_severity(monkeypatch, capsys):
    for severity, code in (("note", 0), ("warning", 1), ("error", 2)):
        found = [doctor.Check("a", "ok", "fine"), doctor.Check("b", severity, "is so", "do this")]
        monkeypatch.setattr(verb, "checks", lambda gpu, found=found: iter(found))
        assert verb.main([]) == code
        lines = capsys.readouterr().out.splitlines()
        assert lines[1:-2] == [f"{severity:8} b: is so", f"{'':8} cure: do this"]
        assert lines[-2].endswith("python -m profiling run -- python my_train.py")
    verb.print_table(found)
    assert "cure: do this" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "40")
    verb.print_table([doctor.Check("nsys", "note", "missing", f"https://{'a' * 40}.example")])
    assert "…" not in (narrow := capsys.readouterr().out) and narrow.count("a" * 9) >= 2
    with pytest.raises(ValueError, match="--jsn"):
        verb.main(["--jsn"])


@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_the_tool_that_is_named_is_the_one_that_the_verbs_take(
    no_nsys, tmp_path, monkeypatch, name
):
    """The newest, where none is on PATH: not the first by the names of its folders."""
    for version in ("2025.2.0", "2025.10.1", "2025.3.1"):
        program = tmp_path / version / name
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho 'Nsight, Version {version}.7 (build 1)'\n")
        program.chmod(0o755)
    monkeypatch.setitem(nsight.PLACES, name, (str(tmp_path / "*" / name),))
    check = doctor.ncu(gpu=True) if name == "ncu" else next(doctor.nsys(gpu=True))
    taken = nsight.find(name)
    assert taken == nsight.Program(str(tmp_path / "2025.10.1" / name), "2025.10.1.7")
    assert check.finding.startswith(f"{taken.version} at {taken.path}; also 2025.3.1.7 at ")
