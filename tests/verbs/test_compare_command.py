"""`python -m profiling compare`: real captures, run folders, written files, exit codes."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiling.analysis.difference.compared import compared_capture
from profiling.analysis.difference.comparison import compare
from profiling.analysis.sum_records import FamilySum
from profiling.report.comparison.comparison_charts import waterfall
from profiling.report.comparison.document import comparison_document
from profiling.report.renderers.markdown import escape, markdown
from profiling.report.renderers.page import page
from profiling.verbs import compare as comparison_command
from tests.helpers.folders import rows_of_start, with_rows, write_run
from tests.helpers.reports import flash, flash_report, report, slow, slow_report
from tests.paths import CAPTURES, PROJECT


def capture(name: str) -> str:
    return str(CAPTURES / f"{name}.sqlite.gz")


def compared(tmp_path: Path, one: str, other: str) -> dict:
    path = tmp_path / "comparison.json"
    assert comparison_command.main([capture(one), capture(other), "--json", str(path)]) == 0
    return json.loads(path.read_text())


@pytest.fixture
def by_hand(monkeypatch):
    """`slow` and `flash` in place of what captures of these names would give."""
    made = {"slow": slow_report, "flash": flash_report, "again": slow_report}

    def open_report(path: Path, step: str | None, phases: list[str] | None) -> SimpleNamespace:
        if path.stem not in made:
            raise ValueError(f"{path}: no such file")
        trace = SimpleNamespace(file=path)
        return SimpleNamespace(plain_report=made[path.stem](), manifest=None, trace=trace)

    monkeypatch.setattr(comparison_command, "open_report", open_report)
    return made


def test_slow_against_flash_compiled_as_captured_on_a_gpu(tmp_path, capsys, monkeypatch):
    replays = "profiling.analysis.open_report.what_would_help"
    monkeypatch.setattr(replays, lambda *_: pytest.fail("a comparison shows no predictions"))
    found = compared(tmp_path, "slow_compile", "flash_compile")
    assert found["verdict"] == "faster"
    assert 0.80 < found["step_ms"]["ci95"][0] < found["step_ms"]["ci95"][1] < 0.83
    families = {row["family"]: row for row in found["families"]}
    assert families["softmax"]["candidate_ms"] == 0 and families["attention"]["baseline_ms"] == 0
    assert "softmax" in found["sentence"] and "attention" in found["sentence"]
    means = found["step_ms"]["candidate_mean"] - found["step_ms"]["baseline_mean"]
    assert sum(row["delta_ms"] for row in found["buckets"]) == pytest.approx(means, abs=1e-9)
    assert any("flash_fwd" in row["name"] for row in found["kernels"]["added"])
    assert found["sentence"].split(" (")[0] in " ".join(capsys.readouterr().out.split())


def test_eager_against_compiled_is_launches_and_fused_kernels(tmp_path, capsys):
    found = compared(tmp_path, "flash_eager", "flash_compile")
    assert found["verdict"] == "faster" and found["step_ms"]["ratio"] < 0.4
    assert 0.8 < found["ratio_bound"] < 0.9  # the eager kernels alone outlast the compiled step
    assert "flash_compile is at least 1.24x faster than flash_eager (captured" in found["sentence"]
    assert "ratio without a profiler 0.808 or less" in " ".join(capsys.readouterr().out.split())
    largest = min(found["buckets"], key=lambda row: row["delta_ms"])
    assert largest["bucket"] == "idle_launch"
    notes = " ".join(found["comparability"]["notes"])
    assert "which a profiler lengthens" in notes  # eager steps are not that long without one


@pytest.mark.parametrize("pair", [("slow_eager", "flash_eager"), ("flash_eager", "slow_eager")])
def test_what_a_profiler_made_of_eager_steps_is_no_answer(pair, tmp_path):
    """Captured, slow is 1.49 times as fast; without a profiler flash is 1.8 times as fast."""
    found = compared(tmp_path, *pair)
    assert found["verdict"] == "cannot_tell" and found["cannot_tell"]["reason"] == "profiler"
    assert found["cannot_tell"]["needed"] is None and "profiling ab" in found["sentence"]
    assert "idle: kernel launches" in found["sentence"]
    assert "its kernels take 5.55 ms" in found["sentence"]


def test_run_folders_compare_by_their_unprofiled_steps(tmp_path, capsys):
    one = with_rows(tmp_path / "a", *rows_of_start(5.0))
    other = with_rows(tmp_path / "b", *rows_of_start(5.6))
    assert comparison_command.main([str(one), str(other)]) == 0
    out = capsys.readouterr().out
    assert "b is 1.12x slower than a" in out
    assert "no capture in" in out


@pytest.mark.parametrize(
    ("key", "values", "advised"),
    [("attention", ("slow", "flash"), True), ("init_from", ("scratch", "resume"), False)],
)
def test_an_experiment_is_advised_of_what_it_can_vary(tmp_path, capsys, key, values, advised):
    paths = [
        str(write_run(tmp_path / value, **{"attention": "flash", key: value})) for value in values
    ]
    assert comparison_command.main(paths) == 0
    out = capsys.readouterr().out
    command = f"profiling ab {paths[0]}/config.yaml {key}={','.join(values)}   # would other"
    assert (command in out) == advised


def on_cpu(folder: Path) -> Path:
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("NVIDIA H200", "cpu"))
    return folder


def test_one_run_of_each_on_a_cpu_cannot_tell_and_names_the_command_that_can(tmp_path, capsys):
    """One for each key that changes a step."""
    one = on_cpu(write_run(tmp_path / "a", "slow", learning_rate=0.1))
    other = on_cpu(write_run(tmp_path / "b", "flash", compile=False))
    assert comparison_command.main([str(one), str(other), "--fail-on-regression", "5"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "cannot tell whether b is faster than a (6.60 -> 5.41 ms per step): there is one" in out
    assert f"profiling ab {one}/config.yaml attention=slow,flash # attention alone" in out
    assert f"profiling ab {one}/config.yaml compile=true,false # compile alone" in out
    assert "learning_rate=" not in out
    assert "spread (interquartile) 0.0" in out and "none: one run of each, on a CPU" in out


def test_a_run_of_another_program_is_refused_in_one_short_line(tmp_path, capsys):
    rows = [row | {"time/mean_step_ms": row["time/step_ms"]} for row in rows_of_start(5.0)]
    own, foreign = write_run(tmp_path / "own"), with_rows(tmp_path / "foreign", *rows)
    config = {"command": ["python", "x.py"], "in_force": {"device": "cpu"}}
    (foreign / "config.yaml").write_text(json.dumps(config))
    for sides in ([foreign, own], [own, foreign]):
        with pytest.raises(ValueError, match="not comparable") as refused:
            comparison_command.main([*map(str, sides)])
        reason = f"{foreign} is a run of another program than {own}, a run of train.py"
        assert str(refused.value).startswith(f"not comparable: {reason} ({sides[0].name} -> ")
        assert "None" not in str(refused.value)
    assert comparison_command.main([str(own), str(foreign), "--force", "--json", "-"]) == 0
    said = capsys.readouterr().out
    assert "next    python -m profiling ab" not in said
    found = json.JSONDecoder().raw_decode(said)[0]
    assert found["differs"] == ["command"]
    assert [found[side]["name"] for side in ("baseline", "candidate")] == ["own", "foreign"]


def test_folders_of_several_runs_are_judged_over_runs(tmp_path, capsys):
    for attention in ("slow", "flash"):
        for seed in (1, 2, 3):
            on_cpu(write_run(tmp_path / attention / f"seed={seed}", attention, seed))
    sides = [str(tmp_path / "slow"), str(tmp_path / "flash")]
    path = tmp_path / "c.json"
    assert comparison_command.main([*sides, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["verdict"] == "faster" and len(found["step_ms"]["baseline_values"]) == 3
    assert found["step_ms"]["noise_percent"] < 1
    out = " ".join(capsys.readouterr().out.split())
    assert "flash is 1.22x faster than slow" in out and "difference between equal runs" in out
    assert f"profiling ab {sides[0]}/seed=1/config.yaml attention=slow,flash" in out


def test_folders_of_runs_that_are_no_sides_are_refused(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path / "several" / str(seed), seed=seed)
    alone = write_run(tmp_path / "alone" / "1")
    several = str(tmp_path / "several")
    for one in (alone, alone.parent):
        with pytest.raises(ValueError, match=f"^{alone.parent}.*: not a folder of several runs"):
            comparison_command.main([several, str(one)])
    assert comparison_command.main([str(alone.parent), str(alone)]) == 0, "one run in a folder"
    write_run(tmp_path / "several" / "3", "slow")
    with pytest.raises(
        ValueError, match="several: 1 and 3 differ in attention; the runs of one side"
    ):
        comparison_command.main([several, several])
    shutil.rmtree(tmp_path / "several" / "3")
    for folder, threads in ((on_cpu(tmp_path / "several" / seed), seed) for seed in "12"):
        (folder / "environment.json").write_text(f'{{"compute_threads": {threads}}}')
    with pytest.raises(ValueError, match="1 and 2 differ in cores 1 thread against 2 threads"):
        comparison_command.main([several, several])


def test_a_regression_sets_the_exit_code(by_hand, capsys):
    assert comparison_command.main(["flash", "slow", "--fail-on-regression", "5"]) == 1
    assert "regression: slower by more than 5 %" in capsys.readouterr().out
    assert comparison_command.main(["flash", "slow", "--fail-on-regression", "50"]) == 0
    assert comparison_command.main(["slow", "flash", "--fail-on-regression", "0"]) == 0
    assert comparison_command.main(["slow", "again", "--fail-on-regression", "0"]) == 0


def test_what_does_not_compare_is_refused_but_recorded(by_hand, tmp_path, capsys):
    by_hand["flash"] = lambda: report("flash", {"gemm": 1.0}, config={"batch_size": 1})
    path = tmp_path / "c.json"
    with pytest.raises(ValueError, match="not comparable: batch_size 64 against 1 .*--force"):
        comparison_command.main(["slow", "flash", "--json", str(path)])
    assert json.loads(path.read_text())["verdict"] == "not_comparable"
    assert comparison_command.main(["slow", "flash", "--force"]) == 0
    assert "not comparable: batch_size 64 against 1; " in capsys.readouterr().out


def test_all_three_files_are_written(by_hand, tmp_path, capsys):
    paths = {kind: tmp_path / f"comparison.{kind}" for kind in ("json", "markdown", "html")}
    flags = [word for kind, path in paths.items() for word in (f"--{kind}", str(path))]
    assert comparison_command.main(["slow", "flash", *flags]) == 0
    said = compare(slow(), flash()).sentence
    assert json.loads(paths["json"].read_text())["sentence"] == said
    assert escape(said) in paths["markdown"].read_text()
    html = paths["html"].read_text()
    assert "flash is 1.42x faster" in html and '"waterfall"' in html
    assert not list(tmp_path.glob("*.tmp"))
    out = capsys.readouterr().out
    assert "ab FILE attention=slow,flash" in out


def test_uncaptured_steps_of_both_manifests_are_judged_but_not_for_another_range(tmp_path):
    pair = [tmp_path / side / "nsys.sqlite.gz" for side in ("one", "other")]
    for path in pair:
        path.parent.mkdir()
        shutil.copy(capture("flash_metrics"), path)
        shutil.copy(CAPTURES / "flash_metrics.window-1.json", path.with_name("window-1.json"))
    words = [*map(str, pair), "--json", str(tmp_path / "c.json")]
    assert comparison_command.main(words) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["step_ms"]["baseline"] == pytest.approx(5.404, abs=0.001)
    assert len(found["step_ms"]["baseline_values"]) == 40
    assert found["captured_step_ms"]["baseline"] == pytest.approx(5.584, abs=0.001)
    assert comparison_command.main([*words, "--step", "forward"]) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert "captured_step_ms" not in found and len(found["step_ms"]["baseline_values"]) == 20


def test_kernels_that_changed_are_a_table_everywhere(tmp_path, capsys):
    paths = [tmp_path / "c.md", tmp_path / "c.html"]
    flags = ["--markdown", str(paths[0]), "--html", str(paths[1])]
    assert comparison_command.main([capture("slow_eager"), capture("flash_eager"), *flags]) == 0
    row = "51 -> 39"
    assert re.search(r"unrolled_el.* -0.891  -74.7 %  51 -> 39", capsys.readouterr().out)
    assert row.replace(">", "\\>") in paths[0].read_text() and "-74.7 %" in paths[0].read_text()
    assert "Kernels that changed" in paths[1].read_text()
    for path in paths:
        assert "cannot tell whether flash" in path.read_text().replace("\\", "")


def test_the_waterfall_leads_from_the_one_step_to_the_other():
    bars = waterfall(compare(slow(), flash()))["data"][0]
    assert bars["measure"][0] == "absolute" and bars["measure"][-1] == "total"
    assert sum(bars["y"][:-1]) == pytest.approx(bars["y"][-1], abs=0.02)


def test_names_of_kernels_and_files_stay_text():
    """A capture is anyone's: what it calls its kernels runs nowhere and lays out nothing."""
    evil = "</script><script>alert(1)</script>|`<img src=x>"
    other = flash_report()
    other = replace(
        other,
        capture=replace(other.capture, file=f"{evil}.sqlite"),
        kernels=[replace(other.kernels[0], name=evil), *other.kernels[1:]],
        families=[FamilySum(evil, 1, 10**8, 0.0), *other.families[1:]],
    )
    document = comparison_document(compare(slow(), compared_capture(other)))
    html, text = page(document), markdown(document)
    assert "&lt;script&gt;alert" in html
    assert "<script>alert" not in html and "<img" not in html
    assert "<script>" not in re.sub(r"(?<!\\)`[^`]*`", "", text).replace("\\<", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: baseline, candidate"),
        (["slow"], "required: candidate"),
        (["slow", "nowhere"], "nowhere: no such file"),
        (
            ["slow", "flash", "--fail-on-regression", "-1"],
            "--fail-on-regression: -1: must be at least 0",
        ),
        (["slow", "flash", "--fail-on-regression", "nan"], "--fail-on-regression: nan: must be"),
        (["slow", "flash", "--jsn", "x"], "unrecognized arguments: --jsn x; did you mean --json"),
        (
            ["slow", "flash", "--html", "no/c.html"],
            "--html: no/c.html: the folder no does not exist",
        ),
    ],
)
def test_mistakes_of_the_command_line(by_hand, words, message):
    with pytest.raises(ValueError, match=message):
        comparison_command.main(words)


def test_a_folder_without_run_and_captures_is_refused(tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}: ")):
        comparison_command.main([str(tmp_path), capture("slow_eager")])


def test_of_a_folder_the_newest_capture_is_compared(tmp_path):
    shutil.copy(capture("slow_compile"), tmp_path)
    assert comparison_command.main([str(tmp_path), capture("flash_compile")]) == 0


@pytest.mark.parametrize("rows", [0, 2])
def test_runs_with_few_rows_compare_by_their_captures(rows, tmp_path, capsys):
    for name in ("slow_compile", "flash_compile"):
        folder = with_rows(tmp_path / name, *rows_of_start(5.0, rows))
        (folder / "profile").mkdir()
        shutil.copy(capture(name), folder / "profile")
    folders = [str(tmp_path / name) for name in ("slow_compile", "flash_compile")]
    assert comparison_command.main(folders) == 0
    said = capsys.readouterr()
    assert "too few rows" in said.err and "so the captures are compared" in said.err
    assert "1.23x faster" in said.out


def test_the_command_line_ends_with_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "bad.sqlite").write_bytes(b"not a database")
    command = [sys.executable, "-m", "profiling", "compare", str(tmp_path / "bad.sqlite")]
    command.append(capture("slow_compile"))
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "bad.sqlite" in done.stderr


def test_steps_and_phases_of_other_programs_can_be_named(tmp_path):
    path = tmp_path / "c.json"
    words = [capture("slow_compile"), capture("flash_compile"), "--step", "forward"]
    assert (
        comparison_command.main([*words, "--phases", "backward, optimizer", "--json", str(path)])
        == 0
    )
    found = json.loads(path.read_text())
    assert found["baseline"]["steps"] == 20
    phases = {row["name"] for row in found["ranges"]}
    assert {"backward", "optimizer"} <= phases and "data" not in phases


def test_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        comparison_command.main(["--help"])
    assert not ended.value.code
    out = capsys.readouterr().out
    assert "examples" in out and "exit code" in out and "--fail-on-regression" in out
