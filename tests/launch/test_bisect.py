"""`bisect` over planted histories: real repositories and worktrees, step times from a table."""

import json
import os
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from profiling.analysis.difference.baseline import Machine
from profiling.launch.bisect import visits
from profiling.launch.bisect.search import Search, Visit
from profiling.launch.git import commit_of, commits_after
from profiling.verbs import bisect
from tests.helpers.timed_commands import time_by_table
from validation.bisect_histories import Row, plant, summary

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")
COMMAND = ["--", "python", "train.py"]


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """planted(ms of each commit, noise): a repository in which a process takes that, or fails where
    it is None; returns the list of what ran, by commit."""

    def make(ms: list[float | None], noise: float = 0.004) -> list[int]:
        chance = random.Random(len(ms))
        files = [{"ms.txt": json.dumps([n, each])} for n, each in enumerate(ms)]
        plant(tmp_path / "repo", files)
        monkeypatch.chdir(tmp_path / "repo")
        ran: list[int] = []

        def ms_of(place: Path | None, number: int) -> float:
            assert place is not None and place != Path.cwd()
            commit, took = json.loads((place / "ms.txt").read_text())
            ran.append(commit)
            if took is None:
                raise ValueError("B ended with exit code 1; its last lines are in x.log")
            return took * chance.lognormvariate(0, noise)

        time_by_table(monkeypatch, ms_of)
        return ran

    return make


def history(commits: int, first_slow: int, factor: float) -> list[float | None]:
    return [10.0 * (factor if number >= first_slow else 1) for number in range(commits + 1)]


def run(*flags: str, json_file: str = "r.json") -> tuple[int, dict]:
    code = bisect.main(["main~32", "main", *flags, "--json", json_file, *COMMAND])
    return code, json.loads(Path(json_file).read_text())


def subject(commit: str) -> str:
    return subprocess.check_output(["git", "show", "-s", "--format=%s", commit], text=True).strip()


@pytest.mark.parametrize(("first_slow", "factor"), [(1, 1.02), (19, 1.05), (32, 1.03), (7, 0.96)])
def test_the_commit_is_named_with_its_interval(planted, capsys, first_slow, factor):
    planted(history(32, first_slow, factor))
    code, found = run()
    assert code == 0 and subject(found["named"]) == f"commit {first_slow}"
    assert len(found["visits"]) <= 8
    last = found["visits"][-1]
    assert last["ci95"][0] < factor < last["ci95"][1] and last["commit"] == found["named"]
    out = capsys.readouterr().out
    assert f"{len(found['visits'])} visits, " in out and "bisect --capture 'main~32' main" in out
    ratio = rf": takes {last['ratio']:.4f} times as long, [\d.]+ % (less|more) to .* time; \d+ proc"
    assert re.search(ratio, out) and out.startswith("32 commits after ")
    assert ("slower" if factor > 1 else "faster") in found["sentence"]
    assert subprocess.check_output(["git", "worktree", "list"], text=True).count("\n") == 1
    assert [*Path("out-bisect").glob(f"*/visits/*{found['named'][:10]}/report.html")]


def test_a_large_difference_is_said_without_an_exponent():
    found = Visit("a", "b", "bad", "", 7.19, (0.997, 16.4), 4, 0.0, [])
    assert visits.span(found) == "0.3 % less to 1,500 % more time"


def test_no_commit_is_named_where_nothing_changed(planted, capsys):
    ran = planted(history(32, 99, 1.0))
    code, found = run()
    assert code == 3 and not found.get("named") and len(found["visits"]) == 1
    assert set(ran) == {0, 32}
    assert "no commit is named: " in (out := capsys.readouterr().out) and "equal within 1" in out


def test_more_processes_are_run_as_long_as_the_interval_cannot_tell(planted):
    planted(history(32, 11, 1.04), noise=0.03)
    code, found = run("--most-repeats", "80")
    assert code == 0 and subject(found["named"]) == "commit 11"
    assert max(visit["processes"] for visit in found["visits"]) > 20


def test_what_too_few_processes_cannot_tell_is_said(planted, capsys):
    planted(history(32, 11, 1.02), noise=0.08)
    code, found = run("--most-repeats", "6")
    assert code == 3 and found["visits"][0]["told"] == "skipped"
    assert "cannot tell whether" in capsys.readouterr().out


def test_commits_that_fail_are_skipped(planted, capsys):
    ms = history(32, 20, 1.1)
    ms[15] = ms[16] = ms[17] = None
    ran = planted(ms)
    code, found = run()
    assert code == 0 and subject(found["named"]) == "commit 20"
    assert ran.count(16) == 1  # at its first failure
    assert "does not run: B ended with exit code 1" in capsys.readouterr().out


def test_neighbours_that_fail_leave_several_candidates(planted, capsys):
    ms = history(32, 20, 1.1)
    ms[19] = None
    planted(ms)
    code, found = run()
    assert code == 3 and [subject(each) for each in found["candidates"]] == [
        "commit 19",
        "commit 20",
    ]
    assert "the difference came with one of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bad", "said"), [(0, "held against, does not run"), (32, "^BAD .*cannot")]
)
def test_ends_that_fail_are_mistakes(planted, bad, said):
    ms = history(32, 20, 1.1)
    ms[bad] = None
    planted(ms)
    with pytest.raises(ValueError, match=said):
        run()


def test_a_killed_bisection_goes_on(planted, monkeypatch, capsys):
    """A process that is killed leaves its worktrees, and its visits as far as they came."""
    planted(history(32, 9, 1.05))
    pid = os.fork()
    if not pid:
        try:
            timed, count = visits.commands.time_command, iter(range(99))

            def slow(*arguments):
                if next(count) == 23:
                    Path("arrived").touch()
                    time.sleep(60)
                return timed(*arguments)

            visits.commands.time_command = slow
            run()
        finally:
            os._exit(1)
    while not Path("arrived").exists():
        time.sleep(0.05)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    (folder,) = Path("out-bisect").iterdir()
    assert len(json.loads((folder / "bisect.json").read_text())["visits"]) == 2
    assert len([*(folder / "trees").iterdir()]) == 2
    capsys.readouterr()
    code, found = run()
    out = capsys.readouterr().out
    assert code == 0 and subject(found["named"]) == "commit 9"
    assert "2 visits are already done" in out and "visit 3 " in out and "visit 2 " not in out
    assert [*(folder / "trees").iterdir()] == []
    with pytest.raises(ValueError, match="another min_effect_percent; give another folder"):
        run("--min-effect", "3")


def test_a_visit_that_was_stopped_goes_on_as_if_it_had_not_been(planted, monkeypatch):
    planted(history(32, 11, 1.04), noise=0.03)
    _, whole = run("--out", "whole")
    assert whole["visits"][0]["processes"] > 16
    planted(history(32, 11, 1.04), noise=0.03)  # once more, with the same noise
    timed, calls = visits.commands.time_command, iter(range(999))

    def stopped(*arguments):
        if next(calls) == 13:
            raise KeyboardInterrupt
        return timed(*arguments)

    monkeypatch.setattr(visits.commands, "time_command", stopped)
    assert bisect.main(["main~32", "main", "--out", "parts", *COMMAND]) == 130
    _, parts = run("--out", "parts")
    assert parts == whole


def test_ctrl_c_takes_the_worktrees_away_and_says_how_to_go_on(planted, monkeypatch, capsys):
    planted(history(32, 9, 1.05))

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(visits.commands, "time_command", stopped)
    assert bisect.main(["main~32", "main", *COMMAND]) == 130
    assert "stopped; the same command goes on in" in capsys.readouterr().out
    assert subprocess.check_output(["git", "worktree", "list"], text=True).count("\n") == 1
    assert bisect.main(["main~32", "main", *COMMAND]) == 130  # it does, without a visit that ended


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["main~32", "main"], "no command"),
        (["nothing", "main", *COMMAND], "nothing: no such commit"),
        (["main", "main~3", *COMMAND], "is no ancestor of"),
        (["main", "main", *COMMAND], "GOOD and BAD are both"),
        (["main~3", "main", "--repeats", "9", "--most-repeats", "4", *COMMAND], "less than --rep"),
        (["main~3", "main", "--", "X=1"], "A sets variables for no command"),
        (["main~3", "main", "--out", ".", *COMMAND], "contains .git, which no bisection has"),
        (["main~3", "main", "--out", "", *COMMAND], "^argument --out: is empty; name a folder"),
    ],
)
def test_mistakes(planted, words, said):
    planted(history(32, 9, 1.05))
    with pytest.raises(ValueError, match=said):
        bisect.main(words)


def test_outside_of_a_repository_and_a_program_that_is_not_there(
    planted, tmp_path, monkeypatch, capsys
):
    planted(history(32, 9, 1.05))
    assert bisect.main(["main~3", "main", "--", "no-such-program"]) == 127
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is in no git repository"):
        bisect.main(["main~3", "main", *COMMAND])


def test_commits_are_those_of_first_parents_behind_good(tmp_path):
    """GOOD may lie on a merged branch: what was there before the merge is not behind it."""
    plant(tmp_path, [{}])
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b"]
    commit = ["commit", "-q", "--allow-empty", "-m"]
    for words in (
        ["checkout", "-qb", "side"],
        [*commit, "side 1"],
        [*commit, "side 2"],
        ["checkout", "-q", "main"],
        [*commit, "main 2"],
        ["merge", "-q", "--no-ff", "-m", "merge", "side"],
        [*commit, "main 4"],
    ):
        subprocess.run([*git, *words], check=True)
    main = commit_of(tmp_path, "main")

    def subjects_after(good: str) -> list[str]:
        return [each.subject for each in commits_after(tmp_path, commit_of(tmp_path, good), main)]

    assert subjects_after("main~3") == ["main 2", "merge", "main 4"]
    assert subjects_after("side~1") == subjects_after("side") == ["merge", "main 4"]


def found_by(first_slow: int, ratio: float, noise: float, chance: random.Random) -> list[int]:
    """The commits of 1 to 32 that a search leaves, in which processes have outliers."""

    def drawn_ratio(number: int) -> float:
        scatter = chance.lognormvariate(0, noise * (10 if chance.random() < 0.02 else 1))
        return scatter * (ratio if number >= first_slow else 1)

    ends = {32: [drawn_ratio(32) for _ in range(12)]}
    search = Search(32, 0.01, ends, {chance.randint(1, 31)})
    while (number := search.next_commit()) is not None:
        assert number not in search.visited and number not in search.failing
        ratios = [drawn_ratio(number) for _ in range(4)]
        while not search.side_of(number, None, ratios) and len(ratios) < 80:
            ratios.append(drawn_ratio(number))
        search.visited[number] = ratios
    assert len(search.visited) <= 8
    return search.left()


def test_the_search_ends_at_the_commit_or_says_between_which_it_is():
    chance, right = random.Random(0), 0
    for _ in range(60):
        first_slow = chance.randint(1, 32)
        found = found_by(first_slow, chance.choice((0.97, 1.03)), 0.01, chance)
        right += first_slow in found
    assert right >= 57


def test_the_validation_counts():
    here = 1, Machine(None, "a CPU", 2, "2.13", None)
    rows = [
        Row("a", 3, 2.0, 3, 0, 7, 70, 60.0, *here),
        Row("b", 3, 2.0, 4, 0, 9, 70, 60.0, *here),
        Row("c", None, None, None, 3, 1, 10, 60.0, *here),
    ]
    assert "| 2 with a slowdown | 1 | 1 | 0 |" in summary(rows)
    assert "2 of 3 in at most 8 visits; 150 processes, 3 min" in summary(rows)
