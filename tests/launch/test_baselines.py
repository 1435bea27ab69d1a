"""`baseline save` and `ab --against`: what is kept, what is refused, and how sure an answer is."""

import json
import math
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.difference.baseline import Sitting, ratio_to_baseline
from profiling.analysis.statistics import answer
from profiling.launch.experiment import baselines
from profiling.shared.json_records import read_json
from profiling.verbs import ab, baseline
from tests.helpers.timed_commands import ENVIRONMENT, time_by_table

COMMAND = ["python", "a.py"]


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """An empty folder, and a table of what each process of a command takes."""
    monkeypatch.chdir(tmp_path)
    table = {"ms": 10.0, "environment": dict(ENVIRONMENT)}

    def ms_of(place: Path | None, number: int) -> float:
        return (9.0 if place else table["ms"]) * (1 + 0.001 * (number % 3))

    time_by_table(monkeypatch, ms_of, table["environment"])
    stamps = iter(range(60))
    keep = baselines.keep

    def keep_later(folder: Path, sitting: Sitting) -> Path:
        sitting = Sitting(**(vars(sitting) | {"when": f"2026-01-01T00:00:{next(stamps):02d}Z"}))
        return keep(folder, sitting)

    monkeypatch.setattr(baselines, "keep", keep_later)
    return table


def save(ms: float, table: dict, *flags: str) -> None:
    table["ms"] = ms
    assert baseline.main(["save", "main", "--repeats", "3", *flags, "--", *COMMAND]) == 0


def test_a_sitting_is_kept_whole(timed, capsys):
    save(10.0, timed, "--steps", "40")
    (file,) = Path(".profiling/baselines/main").iterdir()
    kept = read_json(file, Sitting)
    assert kept.command == "python a.py" and (kept.steps, kept.warm_up) == (40, 20)
    assert len(kept.five_ms) == 3 and kept.medians_ms == pytest.approx([10.01, 10.02, 10.0])
    assert kept.machine.torch == "2.13.0" and kept.machine.cpu and kept.commit is None
    assert 0.01 < kept.noise_percent < 0.2 and "kept    .profiling" in capsys.readouterr().out
    save(10.0, timed, "--steps", "40")
    assert len([*file.parent.iterdir()]) == 2


def test_the_next_command_runs_as_it_is_printed(timed, capsys):
    save(10.0, timed, "--steps", "40", "--warm-up", "30", "--baselines", "kept")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next ")]
    words = shlex.split(line)
    assert words[1:5] == ["python", "-m", "profiling", "ab"]
    assert ab.main(words[5:]) == 0
    assert "baseline:main" in capsys.readouterr().out


def test_sittings_decide_and_say_that_nothing_ran_in_turns(timed, capsys):
    for ms in (10.0, 10.1, 9.95, 10.05):
        save(ms, timed)
    timed["ms"] = 12.0
    words = ["--against", "baseline:main", "--fail-on-regression", "5", "--repeats", "3"]
    assert ab.main([*words, "--", *COMMAND]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "python a.py is 1.2" in out and "slower than baseline:main" in out
    assert "measured at another time, not in turns" in out
    assert "standard deviation, 3 degrees of freedom; 4 sittings of this commit" in out
    (folder,) = Path("out-ab").iterdir()
    (comparison,) = json.loads((folder / "results.json").read_text())["comparisons"]
    low, high = comparison["step_ms"]["ci95"]
    assert 1.1 < low < 1.2 < high < 1.3
    timed["ms"] = 10.2
    assert ab.main([*words, "--", *COMMAND]) == 0


def test_one_sitting_calls_only_what_no_drift_explains(timed, capsys):
    save(10.0, timed)
    words = ["--against", "baseline:main", "--fail-on-regression", "5", "--", *COMMAND]
    timed["ms"] = 12.5
    assert ab.main(words) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "only a difference beyond 30% is called" in out and "baseline save main -- COMMAND" in out
    )
    timed["ms"] = 14.0
    assert ab.main(words) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"torch": "2.14.0"}, "torch 2.13.0 there, 2.14.0 here"),
        ({"gpu": "NVIDIA H200"}, "gpu none there, NVIDIA H200 here"),
    ],
)
def test_another_machine_is_refused_behind_the_first_process(timed, change, said):
    save(10.0, timed)
    timed["environment"].update(change)
    with pytest.raises(ValueError, match=f"baseline:main: was measured on another.*: {said}; "):
        ab.main(["--against", "baseline:main", "--", *COMMAND])


def test_another_cpu_is_refused_before_the_first_process(timed, monkeypatch):
    save(10.0, timed)
    monkeypatch.setattr(baselines, "cpu_name", lambda: "a Z80")
    with pytest.raises(ValueError, match="cpu .* there, a Z80 here; save one here"):
        ab.main(["--against", "baseline:main", "--", *COMMAND])
    assert not Path("out-ab").exists()


def test_a_command_alone_is_not_called_a(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="^the command sets variables for no command: A=1"):
        baseline.main(["save", "main", "--", "A=1"])
    with pytest.raises(ValueError, match="^the command ended with exit code 1; see "):
        baseline.main(["save", "main", "--", "false"])


def test_a_command_that_cannot_be_started_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert baseline.main(["save", "main", "--", "no-such-word"]) == 127
    assert "no-such-word: command not found" in capsys.readouterr().err
    headless = tmp_path / "headless"
    headless.write_text("echo no first line with an interpreter\n")
    headless.chmod(0o755)
    with pytest.raises(ValueError, match=r"^\./headless: Exec format error; name the program that"):
        baseline.main(["save", "main", "--", "./headless"])
    assert [*tmp_path.iterdir()] == [headless]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--against", "main", "--", *COMMAND], "main: give commit:REV or baseline:NAME"),
        (["--against", "baseline:x", "--", *COMMAND], "has no baseline x; there are main"),
        (["--against", "baseline:../x", "--", *COMMAND], "name a baseline with letters"),
        (["--against", "commit:main", "--", *COMMAND], "is in no git repository"),
        (["--against", "baseline:main", "--steps", "40", "--", *COMMAND], "--steps 40: .*has None"),
        (["--against", "baseline:main", "attention=slow,flash"], "only with a command: ab --aga"),
        (["--against", "baseline:main", "--", *COMMAND, ":::", *COMMAND], "takes one command"),
        (["--against", "baseline:main", "--capture", "--", *COMMAND], "--capture: a baseline has"),
    ],
)
def test_mistakes_of_against(timed, words, said):
    save(10.0, timed)
    with pytest.raises(ValueError, match=said):
        ab.main(words)


@pytest.mark.parametrize(
    "words",
    [
        ["save", "main"],
        ["save", "a/b", "--", *COMMAND],
        ["show", "m"],
        ["save", "main", "--baselines", __file__, "--", *COMMAND],
    ],
)
def test_mistakes_of_save(timed, words):
    mistakes = r"no command|a/b: name a baseline|invalid choice|baselines.py is a file; name a"
    with pytest.raises(ValueError, match=mistakes):
        baseline.main(words)
    assert not Path("out-baseline").exists()


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_commit_runs_in_its_worktree_in_turns(timed, tmp_path, monkeypatch, capsys):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    Path("part").mkdir()
    Path("part/a.py").touch()
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.chdir("part")
    ran = time_by_table(monkeypatch, lambda place, number: (9 if place else 10) + number % 2 / 100)
    assert ab.main(["--against", "commit:HEAD", "--repeats", "3", "--", *COMMAND]) == 0
    assert [bool(place) for place in ran] == [True, False, False, True, True, False]
    assert ran[0].name == "part" and not ran[0].exists()  # removed behind the last process
    out = " ".join(capsys.readouterr().out.split())
    assert "this folder is 1.11x slower than HEAD " in out
    assert subprocess.check_output(["git", "worktree", "list"], text=True).count("\n") == 1
    with pytest.raises(ValueError, match="is the same file on both sides; name it relative"):
        ab.main(["--against", "commit:HEAD", "--", "python", f"{tmp_path}/part/a.py"])
    with pytest.raises(ValueError, match="nothing: no such commit"):
        ab.main(["--against", "commit:nothing", "--", *COMMAND])


def test_equal_commands_are_seldom_called_different_over_drifting_sittings():
    """Drift of 3 % between sittings: an interval over processes would call most of them."""
    random = np.random.default_rng(1)
    called = 0
    for _ in range(200):
        sittings = [sitting(series(random)) for _ in range(4)]
        ratio, noise = ratio_to_baseline(sittings, sittings, series(random))
        called += answer(ratio, noise, 0.02) in ("faster", "slower")
    assert called <= 5  # 2.5 %


def series(random: np.random.Generator) -> list[float]:
    middle = 10 * math.exp(random.normal(0, 0.03))
    return [middle * math.exp(x) for x in random.normal(0, 0.005, 5)]


def sitting(medians_ms: list[float]) -> Sitting:
    machine = baselines.machine_of(None)
    fives = [[ms] * 5 for ms in medians_ms]
    return Sitting(1, "main", "", None, False, None, "a", None, 20, fives, [], 1.0, machine, {}, [])
