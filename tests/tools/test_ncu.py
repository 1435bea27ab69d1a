"""python -m profiling ncu: on output recorded on an H200, and with a fake ncu."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profiling.tools import nsight
from profiling.tools.ncu_csv import read_pages
from profiling.verbs import ncu
from tests.paths import CAPTURES, FAKES, PROJECT

FLASH = CAPTURES / "ncu_flash.details.csv"
TRITON = CAPTURES / "ncu_triton.details.csv"
ELEMENTWISE = CAPTURES / "ncu_elementwise.raw.csv"
TRAIN = ["python", "train.py", "config/shakespeare_char.yaml", "profile=nsys"]


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """fake(outcome): puts the pretending ncu on PATH; fake.calls() are its profiling calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\n" + (FAKES / "fake_ncu.py").read_text())
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    monkeypatch.chdir(tmp_path)

    def install(outcome: str, page: Path = FLASH) -> None:
        (folder / "fake.json").write_text(json.dumps({"outcome": outcome, "page": str(page)}))

    def calls() -> list[dict]:
        made = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
        return [call for call in made if "--export" in call["arguments"]]

    install.calls = calls
    return install


def read(path: Path):
    return read_pages(path.read_text())


def test_the_flash_kernel_as_recorded():
    (kernel,) = read(FLASH)
    assert kernel.name.startswith("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 64")
    assert (kernel.grid, kernel.block) == ("(2, 64, 6)", "(128, 1, 1)")
    assert kernel.ranges == ["iteration 10", "forward"]
    assert kernel.duration_ns == pytest.approx(41_020)
    assert (kernel.sm_percent, kernel.memory_percent, kernel.dram_percent) == (34.95, 20.89, 20.89)
    assert kernel.dram_bytes_per_s == 1e12
    assert kernel.theoretical_occupancy_percent == 12.5
    assert kernel.achieved_occupancy_percent == 11.86
    assert (kernel.waves, kernel.registers) == (2.91, 255)
    assert (kernel.shared_static_bytes, kernel.shared_dynamic_bytes) == (0, 32_770)
    assert kernel.limited_by == ["registers"] and kernel.blocks_per_sm["registers"] == 2
    assert kernel.tail_percent == pytest.approx(3.0)


def test_ncus_advice_with_its_estimates():
    (kernel,) = read(FLASH)
    (limit,) = [advice for advice in kernel.advice if advice.rule == "TheoreticalOccupancy"]
    assert (limit.kind, limit.speedup_percent, limit.scope) == ("OPT", 57.34, "global")
    assert "limited by the number of required registers" in limit.text
    (roofline,) = [advice for advice in kernel.advice if advice.rule == "SOLFPRoofline"]
    assert (roofline.kind, roofline.speedup_percent, roofline.scope) == ("INF", None, None)
    assert sum(advice.rule == "WorkloadImbalance" for advice in kernel.advice) == 3


def test_triton_kernels_each_with_their_own_limit():
    tiny, embedding, fused = read(TRITON)
    assert (
        fused.name == "triton_per_fused__to_copy_add_embedding_native_dropout_native_layer_norm_2"
    )
    assert fused.registers == 132 and fused.limited_by == ["registers"]
    blocks, sms = 8192, 132
    assert fused.waves == pytest.approx(blocks / (sms * 12), abs=0.005)
    assert fused.tail_percent == pytest.approx(100 * (1 - 5.17 / 6))
    assert embedding.limited_by == ["warps"]
    # one block on 132 multiprocessors: ncu rounds the waves to 0, the only one is empty
    assert tiny.waves == 0 and tiny.tail_percent == 100


def test_the_raw_page_has_the_same_metrics_and_no_advice():
    random, power = read(ELEMENTWISE)
    assert random.duration_ns == pytest.approx(56_096, rel=1e-3)
    assert power.limited_by == ["registers", "warps"]  # a tie
    assert power.dram_percent == pytest.approx(70.84, abs=0.01)
    assert power.dram_bytes_per_s is None  # the set `basic` has it not
    assert power.advice == [] and power.ranges == []


@pytest.mark.parametrize(
    "unit, value, expected",
    [
        ("nsecond", "1,234", 1234),
        ("usecond", "1.5", 1500),
        ("us", "1.5", 1500),
        ("msecond", "2", 2e6),
        ("ms", "2", 2e6),
        ("second", "1", 1e9),
        ("us", "n/a", None),
        ("us", "nan", None),
        ("fortnight", "1", None),
    ],
)
def test_units_of_every_version(unit, value, expected):
    old = '"us","41.02"'
    assert old in FLASH.read_text()
    (kernel,) = read_pages(FLASH.read_text().replace(old, f'"{unit}","{value}"'))
    assert kernel.duration_ns == expected


def test_a_metric_that_was_not_measured_is_none_and_limits_may_be_missing():
    lines = FLASH.read_text().splitlines()
    kept = [line for line in lines if "Block Limit" not in line and '"Waves Per SM"' not in line]
    (kernel,) = read_pages("\n".join(kept))
    assert kernel.waves is None and kernel.tail_percent is None
    assert kernel.limited_by == [] and kernel.registers == 255


def test_the_programs_own_output_before_the_page_is_skipped():
    text = "==PROF== Connected to process 7\nstep 0: loss 4\n" + FLASH.read_text()
    assert len(read_pages(text)) == 1


def test_what_is_no_page_is_refused_by_name(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv: has no header of an ncu CSV page"):
        ncu.main([str(path)])


@pytest.mark.parametrize("column", ["Kernel Name", "Grid Size", "Metric Unit", "Rule Type"])
def test_a_page_without_a_column_is_refused_by_name(tmp_path, column):
    path = tmp_path / "other.csv"
    path.write_text(FLASH.read_text().replace(f'"{column}"', '"else"', 1))
    with pytest.raises(ValueError, match=rf"other\.csv: has no column {column}; write it with ncu"):
        ncu.main([str(path)])


def test_a_page_that_ends_in_the_middle_of_a_line_is_refused(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text(FLASH.read_text() + '"0","634"\n')
    with pytest.raises(ValueError, match=r"other\.csv: is cut off in a line"):
        ncu.main([str(path)])


def test_the_whole_command(fake):
    fake("report")
    flags = "--kernel ^triton --range backward --skip 2 --count 3 --set basic --clock-control base"
    assert ncu.main([*flags.split(), "--", *TRAIN]) == 0
    (call,) = fake.calls()
    options, program = call["arguments"][: -len(TRAIN)], call["arguments"][-len(TRAIN) :]
    assert program == TRAIN
    pairs = dict(zip(options, options[1:], strict=False))
    assert pairs["--nvtx-include"] == "nanogpt@backward/" and "--nvtx" in options
    assert pairs["--profile-from-start"] == "off"
    assert pairs["--kernel-name"] == "regex:^triton"
    assert (pairs["--launch-skip"], pairs["--launch-count"], pairs["--kill"]) == ("2", "3", "yes")
    assert (pairs["--set"], pairs["--clock-control"]) == ("basic", "base")
    assert pairs["--graph-profiling"] == "node"


def test_by_default_five_kernels_of_forward_fully_at_the_clocks_of_training(fake):
    fake("report")
    assert ncu.main(["--", *TRAIN]) == 0
    (call,) = fake.calls()
    text = " ".join(call["arguments"])
    assert "--nvtx-include nanogpt@forward/" in text and "--launch-count 5" in text
    assert "--set full --clock-control none" in text and "--kernel-name" not in text


def test_without_a_range_any_program_from_its_start(fake):
    fake("report")
    assert ncu.main(["--range", "none", "--", "python", "mine.py"]) == 0
    (call,) = fake.calls()
    assert not {"--nvtx", "--nvtx-include", "--profile-from-start"} & set(call["arguments"])


def test_report_json_and_page(fake, tmp_path, capsys):
    fake("report", TRITON)
    files = ["--json", "ncu.json", "--html", "ncu.html", "--out", "kept"]
    assert ncu.main([*files, "--", *TRAIN]) == 0
    assert ncu.main([*files, "--", *TRAIN]) == 0
    names = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert names == ["ncu.ncu-rep", "ncu.previous-1.ncu-rep"]
    kernels = json.loads(Path("ncu.json").read_text())["kernels"]
    assert [kernel["registers"] for kernel in kernels] == [16, 18, 132]
    assert kernels[2]["limited_by"] == ["registers"] and kernels[2]["blocks_per_sm"]["warps"] == 64
    assert all(math.isfinite(kernel["duration_ns"]) for kernel in kernels)
    page = Path("ncu.html").read_text()
    assert "38.88 µs" in page and "UncoalescedGlobalAccess, up to 22.6 %" in page
    assert "http-equiv" in page and "src=" not in page  # it loads nothing
    assert "42.85 µs in all" in capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_the_advice_bears_its_numbers(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert ncu.main([str(TRITON)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    rows = [line.split() for line in lines if line.startswith(" ") and "µs" in line]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert rows[2][-7:] == ["64.6", "9.58", "17.5", "18.8", "registers", "5.17", "13.8"]
    assert "2. triton_poi_fused_embedding_1 in iteration 0 / forward" in lines


def test_an_existing_report_is_read_through_ncu_in_base_units(fake, tmp_path, capsys):
    fake("report")
    (tmp_path / "old.ncu-rep").write_text("a report")
    assert ncu.main(["old.ncu-rep"]) == 0
    assert "flash_fwd_kernel<bfloat16_t>" in capsys.readouterr().out
    calls = [json.loads(line) for line in (tmp_path / "bin/calls.jsonl").read_text().splitlines()]
    assert "--print-units base" in " ".join(calls[-1]["arguments"])
    (tmp_path / "torn.ncu-rep").write_text("half")
    with pytest.raises(ValueError, match=r"torn\.ncu-rep: ncu --import failed: .*Failed to open"):
        ncu.main(["torn.ncu-rep"])


@pytest.mark.parametrize(
    "outcome, code, said",
    [
        ("permission", 1, "for the administrator (ERR_NVGPUCTRPERM)"),
        ("option", 1, "ncu rejected an option"),
        ("crash", 3, "the program or ncu failed"),
        ("no kernel", 1, "in the range forward with a name that matches gemm"),
        ("no kernel", 1, "these kernels ran: reduce_kernel, vectorized_elementwise_kernel"),
        ("no kernel at all", 1, "check that the window was opened"),
    ],
)
def test_no_report_is_explained(fake, capfd, outcome, code, said):
    fake(outcome)
    assert ncu.main(["--kernel", "gemm", "--", *TRAIN]) == code
    out = capfd.readouterr().out
    assert "no report: " in out and said in out


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "give a command after --"),
        (["a.csv", "--", "python"], "give a command after --"),
        (["--", "python", "train.py"], "with profile=nsys; add profile=nsys profile.start=10"),
        (["--count", "0", "--", *TRAIN], "--count: 0"),
        (["--set", "everything", "--", *TRAIN], "--set"),
        (["absent.csv"], r"absent\.csv: no such file"),
        (["--ncu", "/bin/true", "--", *TRAIN], "--ncu /bin/true: does not answer"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(fake, words, said):
    fake("report")
    with pytest.raises(ValueError, match=said):
        ncu.main(words)


def test_under_nsys_it_refuses(fake, monkeypatch):
    fake("report")
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    with pytest.raises(ValueError, match="nsys is attached"):
        ncu.main(["--", *TRAIN])


def test_secrets_do_not_reach_the_report(fake, monkeypatch, capsys):
    fake("report")
    monkeypatch.setenv("SOME_API_KEY", "hush")
    assert ncu.main(["--", *TRAIN]) == 0
    assert "SOME_API_KEY" not in fake.calls()[0]["environ"]
    assert "SOME_API_KEY" in capsys.readouterr().err


def test_dry_run_prints_the_command_alone(fake, tmp_path, capsys):
    fake("report")
    assert ncu.main(["--dry-run", "--", *TRAIN]) == 0
    assert capsys.readouterr().out.strip().endswith("profile=nsys")
    assert not (tmp_path / "out-ncu").exists() and fake.calls() == []


def test_ncu_is_found_on_path_else_the_newest_elsewhere(fake, tmp_path, monkeypatch):
    fake("report")
    assert nsight.find("ncu").version == "2025.3.1.0"
    newer = tmp_path / "opt" / "2026.1.0" / "ncu"
    newer.parent.mkdir(parents=True)
    newer.write_text("#!/bin/sh\necho 'Version 2026.1.0.0 (build 1)'\n")
    newer.chmod(0o755)
    older = tmp_path / "opt" / "2025.3.1" / "ncu"
    shutil.copytree(tmp_path / "bin", older.parent)
    monkeypatch.setitem(nsight.PLACES, "ncu", (str(tmp_path / "opt/*/ncu"),))
    assert nsight.find("ncu").path == str(tmp_path / "bin" / "ncu")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if shutil.which("ncu"):
        pytest.skip("a real ncu lies in /usr/bin")
    assert nsight.find("ncu").path == str(newer)
    monkeypatch.setitem(nsight.PLACES, "ncu", ())
    with pytest.raises(ValueError, match="ncu: not found on PATH"):
        nsight.find("ncu")


def test_the_verb_reads_a_page_from_the_command_line(tmp_path):
    words = [sys.executable, "-m", "profiling", "ncu", str(FLASH)]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "1 kernel launch profiled, 41.02 µs in all" in done.stdout
