"""validation.foreign: table, rows, refusals, and the passes with programs that need no GPU."""

import inspect
import itertools
import shutil
from unittest.mock import create_autospec

import pytest
import torch

from benchmarks.measuring import Process
from profiling.analysis.records import Gain
from profiling.launch import reports
from profiling.shared.causes import VERDICT
from profiling.shared.json_records import read_json, to_json
from profiling.timeline.opening import open_capture
from tests.helpers.clock import FakeClock
from tests.paths import PROJECT
from validation import diagnoses, foreign
from validation.diagnoses import Diagnosis, Result, Times
from validation.foreign import ForeignConfig, main
from validation.foreign_programs import __main__ as passes
from validation.foreign_programs import allocation, copies, cpu, data, gpu, launch, synchronization
from validation.foreign_programs.series import PROGRAMS, SERIES, Program

CAPTURES = PROJECT / "tests" / "captures"
MODULES = (allocation, copies, cpu, data, gpu, launch, synchronization)


def test_each_series_plants_what_the_verdict_knows():
    assert {number: len(programs) for number, programs in SERIES.items()} == {
        1: 21,
        2: 23,
        3: 14,
        4: 13,
        5: 10,
    }
    for programs in SERIES.values():
        assert {program.planted for program in programs} == set(VERDICT) - {
            "communication", "gpu_gaps", "gpu", "host", "cpu_only", "evaluation",
            "checkpoint", "logging", "unknown",
        }  # fmt: skip


def test_every_program_is_in_one_series_and_says_what_is_planted():
    made = {
        name
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and list(inspect.signature(function).parameters) == ["fault"]
    }
    assert made == set(PROGRAMS)
    assert len(PROGRAMS) == sum(map(len, SERIES.values()))
    for name, program in PROGRAMS.items():
        assert program.make.__doc__ and program.make.__doc__.endswith("."), name
        assert program.make.__module__.endswith(program.planted.split("_")[0]), name


def test_the_edit_distance_is_levenshteins():
    assert cpu.edit_distance(list(b"kitten"), list(b"sitting")) == 3


def test_muons_steps_make_matrices_nearly_orthogonal_one_by_one_or_together():
    matrices = torch.randn(3, 24, 48, generator=torch.Generator().manual_seed(0))
    together = gpu.orthogonalise(matrices)
    spectrum = torch.linalg.svdvals(together.float())
    assert spectrum.min() > 0.5 and spectrum.max() < 1.3
    alone = torch.cat([gpu.orthogonalise(matrix) for matrix in matrices.split(1)])
    assert torch.allclose(alone, together, atol=0.05)


def test_inflated_photos_are_batches_of_the_same_shape():
    made, ready = (data.CompressedPhotos(inflate)[3] for inflate in (True, False))
    assert made[0].shape == ready[0].shape == (3, 224, 224) and made[1] == ready[1] == 3
    assert made[0].min() >= 0 and 0.9 < made[0].max() < 1


def test_texts_are_sorted_for_each_batch_only_where_that_is_the_fault(monkeypatch):
    asked = []
    order = data.BatchesByLength.order
    monkeypatch.setattr(
        data.BatchesByLength, "order", lambda self: asked.append(self.again) or order(self)
    )
    for again in (False, True):
        sampler = data.BatchesByLength(again)
        batches = list(itertools.islice(iter(sampler), 3))
        lengths = [sampler.lengths[index] for batch in batches for index in batch]
        assert len(lengths) == 96 and lengths == sorted(lengths)
    assert asked == [False] + [True] * 4


def diagnosis(verdict, planted="launch", gain_ms=1.5):
    return Diagnosis(
        verdict=verdict,
        ranked=[Gain("cpu", 4.0), Gain("launch", gain_ms)],
        plant="lstm_by_cells",
        planted=planted,
        step_ms=12.5,
        idle_ms=None,
    )


def test_a_row_sets_the_predicted_beside_the_measured_gain():
    by_tool = {"nsys": [diagnosis("launch")], "torch.profiler": [diagnosis("host", gain_ms=2.25)]}
    row = diagnoses.markdown_row(Result("lstm_by_cells", "launch", Times(10.0, 7.5), by_tool))
    assert row == (
        "| lstm_by_cells | launch | launch | HOST | 10.00, 7.50 ms | 2.50 ms "
        "| 1.50 of 12.50 ms | 2.25 of 12.50 ms |"
    )


def test_a_row_of_what_failed_has_no_numbers():
    by_tool = {"nsys": [], "torch.profiler": [diagnosis("gpu_latency", planted="gpu_latency")]}
    row = diagnoses.markdown_row(Result("x", "gpu_latency", None, by_tool))
    assert row == "| x | gpu_latency | – | gpu_latency | – | – | – | – |"


def test_captures_are_counted_and_so_is_whether_repeats_agree(capsys):
    always, often = [diagnosis("launch")] * 3, [diagnosis("launch")] * 2 + [diagnosis("host")]
    results = [
        Result("a", "launch", None, {"nsys": always, "torch.profiler": often}),
        Result("b", "launch", None, {"nsys": often, "torch.profiler": []}),
    ]
    assert "| launch 2, HOST 1 |" in diagnoses.markdown_row(results[1])
    assert diagnoses.print_counts(results, repeats=3) == ["b"]
    lines = capsys.readouterr().out.splitlines()
    assert "| launch | 2 | 7 |" in lines and "7 of 9 verdicts are right" in lines
    assert lines[-5:] == [
        "nsys: 5 of 6",
        "nsys: the same verdict each time for 1 of 2 programs",
        "torch.profiler: 2 of 6",
        "torch.profiler: no capture of b",
        "torch.profiler: the same verdict each time for 0 of 1 programs",
    ]


def test_an_earlier_series_is_read_again(tmp_path, capsys):
    for folder in ("nsys", "torch"):
        (tmp_path / folder).mkdir()
    shutil.copy(CAPTURES / "slow_eager.sqlite.gz", tmp_path / "nsys" / "lstm_by_cells-1.sqlite.gz")
    trace = tmp_path / "torch" / "lstm_by_cells-2.json.gz"
    shutil.copy(CAPTURES / "flash_eager.trace.json.gz", trace)
    (tmp_path / "torch" / "vit_gc-1.json.gz").write_text("cut off")
    (tmp_path / "times.json").write_text(to_json({"lstm_by_cells": Times(10.0, 4.0)}))
    with pytest.raises(SystemExit, match="^foreign: failed: vit_gc; the logs are in "):
        main(ForeignConfig(programs="lstm_by_cells,vit_gc", out=str(tmp_path), reread=True))
    said = capsys.readouterr()
    assert "vit_gc-1.json.gz" in said.err
    lines = said.out.splitlines()
    (row,) = (line for line in lines if line.startswith("| lstm_by_cells | launch |"))
    (other,) = (line for line in lines if line.startswith("| vit_gc"))
    assert "| 10.00, 4.00 ms | 6.00 ms |" in row and row.count(" of ") == 2
    assert other == "| vit_gc | cpu | – | – | – | – | – | – |"
    found = read_json(tmp_path / "results.json", list[Result])
    assert [result.program for result in found] == ["lstm_by_cells", "vit_gc"]
    assert [len(each) for each in found[0].by_tool.values()] == [1, 1]
    right = sum(each[0].verdict == "launch" for each in found[0].by_tool.values())
    assert f"{right} of 2 verdicts are right" in lines


def present(monkeypatch, packages=foreign.PACKAGES, cuda=True):
    monkeypatch.setattr(foreign, "find_spec", lambda name: name in packages)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)


def test_what_lacks_is_named_before_anything_starts(monkeypatch, tmp_path):
    def no_nsys(given):
        raise ValueError(f"nsys: not found ({given})")

    monkeypatch.setattr(foreign.nsys_tool, "find", no_nsys)
    monkeypatch.setattr(foreign, "record", lambda *_: pytest.fail("started"))
    config = ForeignConfig(out=str(tmp_path / "out"))
    present(monkeypatch, ["timm"])
    with pytest.raises(ValueError, match="pip install torchvision transformers$"):
        main(config)
    present(monkeypatch, cuda=False)
    with pytest.raises(ValueError, match="foreign: needs a CUDA GPU"):
        main(config)
    present(monkeypatch)
    with pytest.raises(ValueError, match=r"nsys: not found \(None\)"):
        main(config)
    assert list(tmp_path.iterdir()) == []


def test_captures_are_neither_overwritten_nor_made_up(monkeypatch, tmp_path):
    present(monkeypatch)
    with pytest.raises(ValueError, match="has no captures; leave reread=true away"):
        main(ForeignConfig(out=str(tmp_path), reread=True))
    (tmp_path / "torch").mkdir()
    with pytest.raises(ValueError, match="holds a series; name another folder, or reread=true"):
        main(ForeignConfig(out=str(tmp_path)))


def quick(fault):
    """Next to nothing."""
    return lambda: None


def unmakeable(fault):
    raise RuntimeError("no such model")


def breaking(fault):
    """Fails when it is captured."""
    steps = iter(range(passes.WARM_UP))
    return lambda: next(steps)


@pytest.fixture
def on_cpu(monkeypatch):
    """Fake what the passes ask of CUDA; returns the list of what nsys is told."""
    told = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: told.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: told.append("stop"))
    return told


@pytest.mark.slow
def test_times_are_of_the_same_work(on_cpu, monkeypatch, tmp_path, capsys):
    clock = FakeClock()
    monkeypatch.setattr(passes, "time", clock)

    def sleeper(fault):
        return lambda: clock.sleep(0.005 if fault else 0.0005)

    programs = [Program("cpu", unmakeable), Program("cpu", sleeper, work_without=0.5)]
    passes.time_all(programs, tmp_path / "times.json")
    times = read_json(tmp_path / "times.json", dict[str, Times])
    assert list(times) == ["sleeper"]
    assert times["sleeper"].with_ms == pytest.approx(5)
    assert times["sleeper"].without_ms == pytest.approx(0.5 / 0.5)
    said = capsys.readouterr().out.splitlines()
    assert said == ["unmakeable: failed: RuntimeError('no such model')", "sleeper: done"]


@pytest.mark.slow
def test_each_capture_has_a_range_and_those_that_fail_have_no_name(on_cpu, tmp_path):
    captures = {
        "unmakeable-1": Program("cpu", unmakeable),
        "breaking-1": Program("cpu", breaking),
        "quick-1": Program("cpu", quick),
    }
    passes.record_all_in_ranges(captures, tmp_path / "ranges.json")
    assert read_json(tmp_path / "ranges.json", list[str | None]) == [None, "quick-1"]
    assert on_cpu == ["start", "stop", "start", "stop"]


def test_a_trace_of_torch_has_a_mark_for_each_step(on_cpu, tmp_path):
    (tmp_path / "torch").mkdir()
    passes.record_all_by_torch({"quick-1": Program("cpu", quick)}, tmp_path)
    (file,) = (tmp_path / "torch").iterdir()
    assert file.name == "quick-1.json.gz"
    names = open_capture(file).names
    assert sum("ProfilerStep#" in name for name in names) == passes.IN_TORCH


def test_reports_get_their_programs_names(monkeypatch, tmp_path):
    """Three passes; the reports of the third by number, those that failed left out."""
    calls, exported = [], []

    def run(command, output, environ):
        calls.append(command)
        if "nsys" in command[0]:
            for number in (1, 2):
                (tmp_path / "nsys" / f"range.{number}.nsys-rep").write_text(str(number))
            (tmp_path / "nsys" / "ranges.json").write_text('[null, "vit_gc-1", "vit_gc-2"]')
        return Process(0, 0.0, 0.0, 0)

    monkeypatch.setattr(foreign, "run_process", run)
    export = create_autospec(
        reports.export_reports, side_effect=lambda nsys, made, shown: exported.extend(made)
    )
    monkeypatch.setattr(reports, "export_reports", export)
    nsys = foreign.Nsys("/bin/nsys", "2025.3.1", {}, {})
    foreign.record([PROGRAMS["vit_gc"]], 2, tmp_path, nsys)
    assert [command[-4] for command in calls] == ["time", "torch", "nsys"]
    assert calls[2][:2] == ["/bin/nsys", "profile"]
    assert "--capture-range-end=repeat:3" in calls[2]
    assert all(command[-3:] == [str(tmp_path), "2", "vit_gc"] for command in calls)
    assert exported == [tmp_path / "nsys" / "vit_gc-1.nsys-rep"]
    assert exported[0].read_text() == "2"
