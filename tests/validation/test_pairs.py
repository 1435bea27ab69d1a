"""validation.pairs: its table, halves and built programs; what is measured, kept, sliced, read."""

import gzip
import io
import itertools
import json
import re
import shutil
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from profiling.analysis.open_report import open_report
from profiling.shared.json_records import read_json, to_json
from profiling.tools.nsys_tool import Nsys
from tests.paths import CAPTURES, PROJECT
from validation import pair_captures, pair_processes, pair_records, pairs
from validation.foreign_programs.series import PROGRAMS as FOREIGN
from validation.framework_programs import plain
from validation.pair_programs import __main__ as served
from validation.pair_programs import built, existing, series
from validation.pair_programs.built import Parts
from validation.pair_programs.series import BEFORE, BUILT, HALVES, PROGRAMS, Change, Program
from validation.pair_records import Measured, Opened
from validation.pairs import Machine, PairsConfig, Recorder, chosen, main
from validation.predicted_changes import PREDICTED_BY

FAKES = PROJECT / "tests" / "fakes"
PAIRS = [(program, change) for program in PROGRAMS.values() for change in program.changes]


def test_the_table_has_the_pairs_that_a_record_needs():
    assert len(PAIRS) >= 200 and len({program.family for program in PROGRAMS.values()}) >= 40
    assert sum(change.buys_nothing for _, change in PAIRS) >= 40
    assert set(series.MORE_OF) <= set(PROGRAMS)
    assert all(BEFORE not in {c.name for c in program.changes} for program in PROGRAMS.values())
    assert len({(program.name, change.name) for program, change in PAIRS}) == len(PAIRS)


def test_nothing_chooses_programs_with_a_predicted_change_that_is_expected_to_buy_nothing():
    idle = {p.name for p, change in PAIRS if change.buys_nothing and change.kind in PREDICTED_BY}
    assert {program.name for program in chosen("nothing", "all")} == idle
    assert len(idle) >= 40 and set(series.HIDDEN) < idle
    # bf16, tf32 and the like alone have no prediction
    assert "vit_unfused_gelu" not in idle and "encoder_border-16" not in idle
    assert all(HALVES[program.name] == "first" for program in chosen("nothing", "first"))


def test_programs_are_measured_in_the_order_in_which_they_are_named():
    names = ["trainer-wide", "texts_sent-768", "encoder_fed-1024"]
    assert [program.name for program in chosen(",".join([*names, *names]), "all")] == names
    assert [program.name for program in chosen("trainer-wide,all", "all")][0] == "trainer-wide"


def test_each_change_of_the_second_built_series_is_expected_to_buy_nothing():
    changes = [change for name in series.HIDDEN for change in PROGRAMS[name].changes]
    assert len(changes) >= 65
    assert all(change.buys_nothing and change.kind in PREDICTED_BY for change in changes)


def test_each_change_changes_its_program():
    for program, change in PAIRS:
        name = program.name
        if program.source == "built":
            assert series.with_change(name, change.name) != BUILT[name][0], (name, change.name)
        elif program.source == "trainer":
            before, after = (series.words_of(name, variant) for variant in (BEFORE, change.name))
            assert before != after, (name, change.name)
        elif change.name in existing.CHANGES and program.source == "foreign":
            used = set(FOREIGN[name].make.__code__.co_names) | names_of_helpers(FOREIGN[name].make)
            assert used & set(existing.CHANGES[change.name]), (name, change.name)


def names_of_helpers(make):
    """Names that the functions of a program's module use which it calls, and `training_step`."""
    of = sys.modules[make.__module__]
    called = [getattr(of, name, None) for name in make.__code__.co_names]
    return {
        name
        for function in called
        for code in [getattr(function, "__code__", None)]
        if code
        for name in (*code.co_names, *(("AdamW",) if "training_step" in code.co_names else ()))
    }


def test_halves_are_alike_and_stay_as_they_are_where_a_series_joins():
    count = Counter(HALVES[program.name] for program, _ in PAIRS)
    assert abs(count["first"] - count["second"]) < 0.1 * len(PAIRS)
    nothing = Counter(HALVES[program.name] for program, change in PAIRS if change.buys_nothing)
    assert min(nothing.values()) >= 20
    by_kind = defaultdict(list)
    for program, change in PAIRS:
        by_kind[change.kind].append(HALVES[program.name])
    assert all(len(set(found)) == 2 for found in by_kind.values() if len(found) > 5)
    by_family = defaultdict(set)
    for program in PROGRAMS.values():
        by_family[program.family].add(HALVES[program.name])
    assert all(len(found) == 1 for found in by_family.values())
    new = Program("another", "frameworks", "frameworks 7", (Change("without", "cpu"),))
    assert HALVES.items() <= series.halves([new, *PROGRAMS.values()]).items()


@pytest.fixture
def on_cpu(monkeypatch):
    for module in (built, plain):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(built, "ON_GPU", False)
    monkeypatch.setattr(built, "VOCAB", 64)


FAULTY = Parts(
    "encoder", 64, 1, 2, 8, optimizer="looped", written_out_attention=True, one_hot_loss=True,
    checkpointing=True, reads_loss=True, checks_layers=True, sent=True, pieces=2, logged=3,
    evaluated=1, saves=True, tf32=False, scratch=2,
)  # fmt: skip


@pytest.mark.parametrize(
    "parts",
    [
        FAULTY,
        replace(FAULTY, model="convolutions", width=8, checkpointing=False, channels_last=True),
        Parts("perceptron", 64, 1, 2, doubles=True, workers=0, batch_ms=0.1, optimizer="fused"),
    ],
)
def test_built_steps_run(on_cpu, parts):
    step = built.build(parts)
    step()
    step()
    assert torch.get_float32_matmul_precision() == ("high" if parts.tf32 else "highest")


def test_plain_changes_leave_the_result(on_cpu):
    """Attention and loss, written out and by PyTorch's own functions, from the same weights."""
    losses = []
    words = torch.randint(0, 64, (2, 8))
    for parts in (FAULTY, replace(FAULTY, written_out_attention=False, one_hot_loss=False)):
        torch.manual_seed(0)
        losses.append(built.loss_function(parts, built.make_model(parts))(words).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_change_to_a_foreign_program_lasts_while_it_is_made(monkeypatch):
    given = []
    data = sys.modules["validation.foreign_programs.data"]
    made = torch.nn.Linear(2, 2)
    monkeypatch.setattr(data, "torchvision_model", lambda name: made)
    monkeypatch.setattr(data, "DataLoader", lambda *_, **options: given.append(options))
    monkeypatch.setattr(data, "loader_step", lambda *_, **options: options)
    monkeypatch.setattr(data, "training_step", lambda model: made.to("cpu"))
    before = data.DataLoader
    assert existing.foreign_step("resnet34_small_files", "pinned") == {"non_blocking": True}
    existing.foreign_step("resnet34_small_files", "workers")
    assert [each.get("num_workers") for each in given] == [0, 8] and given[0]["pin_memory"]
    assert data.DataLoader is before


def test_variants_of_a_process_take_turns(monkeypatch, on_cpu):
    """One that cannot be made is left out; products have the precision that a variant asked for."""
    seen = []

    def make_step(program, variant):
        if variant == "broken":
            raise RuntimeError("no such model")
        torch.set_float32_matmul_precision("high" if variant == "tf32" else "highest")
        return lambda: seen.append((variant, torch.get_float32_matmul_precision()))

    monkeypatch.setattr(served, "make_step", make_step)
    monkeypatch.setattr(served, "device_of", lambda _: SimpleNamespace(wait=lambda _: None))
    answers = []
    program = PROGRAMS["encoder_small-6"]
    lines = io.StringIO("before time 3 1\ntf32 time 2 0\nend\n")
    served.serve_steps(program, [BEFORE, "broken", "tf32"], lines, answers.append)
    assert answers[0] == "ready before tf32" and all(float(ms) >= 0 for ms in answers[1:])
    assert seen[12:] == [("before", "highest")] * 4 + [("tf32", "high")] * 2


@pytest.fixture
def nsys(tmp_path):
    """A fake nsys, whose exports are a capture of ours."""
    folder = tmp_path / "nsys"
    folder.mkdir()
    shutil.copy(FAKES / "fake_nsys.py", folder / "fake_nsys.py")
    capture = folder / "capture.sqlite"
    with gzip.open(CAPTURES / "slow_eager.sqlite.gz") as packed:
        capture.write_bytes(packed.read())
    fake = {"version": "2025.3.1", "help": "", "sets": "", "outcome": "", "sqlite": str(capture)}
    (folder / "fake.json").write_text(json.dumps(fake))
    program = folder / "nsys"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "{folder}/fake_nsys.py" "$@"\n')
    program.chmod(0o755)
    return Nsys(str(program), "2025.3.1", {}, {})


@pytest.fixture
def record(monkeypatch, tmp_path, nsys):
    """Record these programs with fake processes in tmp_path/out; returns the names of failed."""
    monkeypatch.setattr(pair_processes, "CHILD", (sys.executable, str(FAKES / "fake_pair.py")))
    machine = Machine("NVIDIA H100", "580", "some", 16, {})

    def run(programs, under=nsys, **keys):
        for program in programs:
            monkeypatch.setitem(HALVES, program.name, HALVES.get(program.name, "first"))
        config = PairsConfig(out=str(tmp_path / "out"), rounds=2, **keys)
        folder = pair_records.folder_of(tmp_path / "out", machine.gpu)
        return Recorder(folder, config, under, machine).record(programs)

    return run


CHANGES = (Change("without", "cpu"), Change("graphs", "graphs", buys_nothing=True))
STEPS = Program("steps", "built", "built 1", CHANGES)
LOOP = replace(STEPS, name="loop", apart=True, large=True)
SECOND = replace(STEPS, name="kept")


def test_a_program_is_timed_captured_and_kept(record, tmp_path, capsys):
    unmakeable = replace(STEPS, changes=(*CHANGES, Change("unmakeable", "bf16")))
    assert record([unmakeable, LOOP, replace(STEPS, name="dies")]) == ["dies"]
    folder = tmp_path / "out" / "nvidia-h100" / "first"
    steps, loop = (
        read_json(folder / "measured" / f"{n}.json", Measured) for n in ("steps", "loop")
    )
    assert steps.rounds_ms == {"before": [200] * 2, "without": [100] * 2, "graphs": [180] * 2}
    assert (steps.not_made, loop.not_made) == (["unmakeable"], [])
    assert loop.block == {"before": 3, "without": 3, "graphs": 3}
    assert [each.tool for each in steps.captures] == ["torch.profiler", "nsys"]
    assert all(each.laps_before_ms == each.laps_after_ms == [200] * 5 for each in loop.captures)
    names = {each.file for each in (*steps.captures, *loop.captures)}
    assert names == {file.name for file in (folder / "captures").iterdir()}
    assert list((folder.parent / "made").iterdir()) == []
    said = capsys.readouterr().err
    # which of the two depends on whether it dies before it is asked or after
    assert re.search("dies: dies: (did not start|ended without an answer); see", said)
    assert record([unmakeable, LOOP]) == [] and "0 pairs of 0 programs" in capsys.readouterr().err


def test_what_would_end_too_late_is_not_started(record, tmp_path, capsys):
    assert record([STEPS, LOOP], limit_s=5) == []
    assert "2 programs are left" in capsys.readouterr().err
    assert pair_records.measured_files(tmp_path / "out" / "nvidia-h100") == []


def test_a_capture_that_is_too_large_is_named_and_left_out(record, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pairs, "LARGEST_BYTES", 1000)
    record([STEPS])
    (file,) = pair_records.measured_files(tmp_path / "out" / "nvidia-h100")
    by_torch, by_nsys = read_json(file, Measured).captures
    assert by_torch.file and by_nsys.file is None and by_nsys.bytes > 1000
    assert "steps.sqlite.xz: left out" in capsys.readouterr().err


def test_trimmed_and_packed_captures_give_the_same_report(tmp_path, nsys):
    whole = tmp_path / "nsys" / "capture.sqlite"
    trimmed = tmp_path / "trimmed.sqlite"
    shutil.copy(whole, trimmed)
    pair_captures.trim(trimmed)
    packed = pair_captures.pack(trimmed, tmp_path)
    assert packed.name == "trimmed.sqlite.xz" and packed.stat().st_size < 1e6
    trimmed.unlink()
    again = pair_captures.unpack(packed, tmp_path)
    told = [json.loads(to_json(open_report(file).report)) for file in (whole, again)]
    assert all(each["what_if"].pop("capture") for each in told)
    assert {key for key in told[0] if told[0][key] != told[1][key]} <= {"capture"}


def test_slices_are_joined_and_checked(record, tmp_path, monkeypatch):
    monkeypatch.setattr(pair_records, "SLICE_BYTES", 200_000)
    monkeypatch.setitem(HALVES, "kept", "second")
    folder, numbers = tmp_path / "out" / "nvidia-h100", itertools.count()
    tars = []
    for program in (STEPS, SECOND):
        record([program], under=None)
        pair_records.write_manifest(folder)
        tars += pair_records.write_slice(folder, f"s{next(numbers)}")
    assert [tar.name for tar in tars] == ["s0-1.tar", "s1-1.tar"]
    assert pair_records.write_slice(folder, "nothing") == []
    (joined,) = pair_records.join_slices(tars, tmp_path / "other")
    assert joined == read_json(folder / "manifest.json", pair_records.Manifest)
    assert (joined.programs, joined.pairs, len(joined.sha256)) == (2, 4, 4)
    with pytest.raises(ValueError, match=r"steps\S+: is in none of the slices"):
        pair_records.join_slices(tars[1:], tmp_path / "part")
    (file,) = (tmp_path / "other").glob("*/first/measured/*.json")
    file.write_text(file.read_text().replace("200.0", "300.0"))
    with pytest.raises(ValueError, match=r"steps\.json: is not the file that was measured"):
        pair_records.join_slices(tars[1:], tmp_path / "other")


def test_the_second_half_is_opened_once(record, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(HALVES, "kept", "second")
    record([STEPS, SECOND], under=None)
    out = str(tmp_path / "out")
    main(PairsConfig(out=out, read=True, half="first"))
    said = capsys.readouterr().out.splitlines()
    assert "| steps | without | NVIDIA H100 | 200.000 (200.000, 200.000) |" in said[2]
    assert said[2].endswith("| 50.0 % | cpu |") and said[3].endswith("| 10.0 % | nothing |")
    for half in ("second", "all"):
        with pytest.raises(ValueError, match="frozen; open it once, with open_second_half=true"):
            main(PairsConfig(out=out, read=True, half=half))
    with pytest.raises(ValueError, match="frozen"):
        list(pair_records.read_pairs(tmp_path / "out", "second"))
    main(PairsConfig(out=out, read=True, half="second", open_second_half=True))
    opened = read_json(tmp_path / "out" / "opened.json", Opened)
    monkeypatch.setattr(pairs, "now", lambda: "later")
    main(PairsConfig(out=out, read=True, half="second"))
    assert read_json(tmp_path / "out" / "opened.json", Opened) == opened
    assert capsys.readouterr().out.count("| kept |") == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"half": "third"}, "half=third: first, second or all"),
        ({"programs": "bert_grad_norm"}, "programs=bert_grad_norm: no such name"),
        ({"pack": "nowhere"}, r"pack=nowhere: no \.tar in it"),
        ({"programs": "trainer"}, "needs a CUDA GPU"),
    ],
)
def test_mistakes_are_named_before_anything_starts(keys, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        main(PairsConfig(out=str(tmp_path / "out"), **keys))
    assert not (tmp_path / "out").exists()
