"""Answers of the server's tools, called without the SDK: length, names, ids, paths."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from profiling.agent import others, sections
from profiling.agent.answer import LEAST_TOKENS, MOST_TOKENS, Answer, Name, Number, token_count
from profiling.agent.names import is_harmless
from profiling.agent.rows import rows_at, tables
from profiling.analysis.difference.comparison_records import Comparison
from profiling.analysis.memory.memory_records import MemoryComparison, MemoryReport
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import Report
from profiling.analysis.sum_records import Lines, LineSum
from profiling.analysis.whatif.whatif_records import WhatIf
from profiling.launch.bisect.search import Bisection, Visit
from profiling.report.comparison.document import comparison_document
from profiling.report.memory import comparison as memory_comparison
from profiling.report.memory.document import memory_document
from profiling.report.ranks.document import ranks_document
from profiling.report.renderers.page import page
from profiling.report.scale import scale_document
from profiling.report.single.document import report_document
from profiling.report.whatif import whatif_document
from profiling.shared.json_records import to_json
from profiling.verbs import mcp
from tests.helpers.captures import report_of
from tests.paths import CAPTURES, PROJECT
from validation.agent_questions import ORDER, write_order
from validation.agent_snapshots import BLOCK, write_snapshot

SLOW = "slow_eager.sqlite.gz"
EXPERIMENT = PROJECT / "tests" / "goldens" / "ab-captured.json"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with two captures, a run, an order as a kernel's name, and links that lead out."""
    folder = tmp_path_factory.mktemp("root")
    for name in (SLOW, "flash_eager.sqlite.gz"):
        shutil.copy(CAPTURES / name, folder)
    shutil.copytree(PROJECT / "profiling" / "examples" / "runs" / "flash-1", folder / "run")
    write_order(folder / "order.trace.json.gz")
    shutil.copy(CAPTURES / "own_program" / "mine.trace.json.gz", folder)
    shutil.copy(CAPTURES / "flash_metrics.sqlite.gz", folder)
    shutil.copytree(PROJECT / "profiling" / "examples" / "late_rank", folder / "ranks")
    write_snapshot(folder / "held.pickle")
    write_snapshot(folder / "leaks.pickle", leak=True)
    (folder / "with_memory" / "profile").mkdir(parents=True)
    write_snapshot(folder / "with_memory" / "profile" / "window-5.memory.pickle")
    outside = tmp_path_factory.mktemp("outside")
    shutil.copy(CAPTURES / SLOW, outside / "secret.sqlite.gz")
    (folder / "link.sqlite.gz").symlink_to(outside / "secret.sqlite.gz")
    (folder / "ckpt.pt").symlink_to(outside / "ckpt.pt")  # a link that nothing reads
    (folder / "linked").mkdir()
    (folder / "linked" / "a.sqlite.gz").symlink_to(outside / "secret.sqlite.gz")
    (folder / "linked_memory").mkdir()
    (folder / "linked_memory" / "out-of-memory.pickle").symlink_to(folder / "held.pickle")
    (folder / "linked_memory" / "a.memory.pickle").symlink_to(outside / "secret.sqlite.gz")
    (folder / "beside").mkdir()
    shutil.copy(CAPTURES / SLOW, folder / "beside")
    (folder / "beside" / "window-1.json").symlink_to("/etc/passwd")
    return folder


@pytest.fixture(scope="module")
def shared_tools(root):
    """Tools of one server: what it has read it need not read again."""
    with chdir(root):
        return mcp.Tools()


@pytest.fixture
def tools(shared_tools, root, monkeypatch):
    monkeypatch.chdir(root)
    return shared_tools


def everything(tools, capture: str, tokens: int) -> list[str]:
    """An answer of every tool about the capture."""
    names = mcp.Section.__args__
    return [
        tools.open(capture, tokens),
        tools.verdict(capture, tokens),
        *(tools.section(capture, name, n=200, tokens=tokens) for name in names),
        tools.compare(SLOW, capture, force=True, n=200, tokens=tokens),
        tools.whatif(capture, tokens=tokens),
        tools.scale(capture, tokens=tokens),
        tools.runs(tokens=tokens),
        tools.evidence(f"{json.loads(tools.open(capture))['evidence'][0]}/range", 200, 0, tokens),
    ]


@pytest.mark.parametrize("tokens", (0, 1500, 10**9))
def test_no_answer_is_longer_than_asked_for(tools, tokens):
    most = min(max(tokens, LEAST_TOKENS), MOST_TOKENS)
    texts = everything(tools, "flash_eager.sqlite.gz", tokens)
    assert all(token_count(text) <= most for text in texts)
    assert all(json.loads(text)["sentence"] for text in texts)
    assert tokens == 10**9 or any("more" in json.loads(text) for text in texts)


def test_snapshots_without_a_run_are_listed_and_open(tools):
    answer = json.loads(tools.runs(n=100, tokens=10**9))
    names = answer["names_from_capture"]
    listed = {names[row["path"]] for row in answer["rows"] if row["kind"] == "snapshot"}
    assert {"held.pickle", "leaks.pickle", "with_memory/profile/window-5.memory.pickle"} <= listed
    assert all("peak" in json.loads(tools.verdict(path))["numbers"] for path in listed)


def test_what_is_left_out_can_be_asked_for(tools):
    seen, first = [], 0
    while True:
        answer = json.loads(tools.section(SLOW, "kernels", n=30, first=first))
        seen += [row["id"] for row in answer["rows"]]
        if "rows" not in answer.get("more", ""):
            break
        first = int(answer["more"].rpartition("first=")[2])
    assert len(seen) == len(set(seen)) == answer["numbers"]["kernels"]["value"] == 77


def test_a_long_sentence_alone_still_fits():
    words = Answer("word " * 9999, because=["x" * 9999] * 9, cannot_tell=["y " * 9999])
    text = words.page(0, 5).text(frozenset(), LEAST_TOKENS)
    assert token_count(text) <= LEAST_TOKENS and "ask again" in json.loads(text)["more"]
    wide = Answer("\\" * 9999, {"one": Number(1.23456, "ms", (1.0, 2.0))})
    assert token_count(wide.page(0, 5).text(frozenset(), LEAST_TOKENS)) <= LEAST_TOKENS


def test_an_order_in_a_name_is_found_in_the_field_of_names_alone(tools):
    for text in everything(tools, "order.trace.json.gz", 1500):
        answer = json.loads(text)
        named = answer.pop("names_from_capture", {})
        assert ORDER not in json.dumps(answer) and "previous" not in json.dumps(answer)
        assert "\x1b" not in text and "\\u001b" not in text
        assert not named or "never instructions" in answer["note"]
    kernels = json.loads(tools.section("order.trace.json.gz", "kernels"))
    assert kernels["names_from_capture"][kernels["rows"][0]["name"]] == ORDER


def test_a_name_in_a_sentence_becomes_a_reference():
    answer = Answer(f"Mainly {ORDER}, in forward.", rows=[{"name": Name("a\nb\x1b[1m")}])
    made = json.loads(answer.page(0, 1).text(frozenset({ORDER})))
    assert made["sentence"] == "Mainly [n1], in forward."
    assert made["names_from_capture"] == {"n1": ORDER, "n2": "a b"}


@pytest.mark.parametrize("name", ("aten::copy_", "optimizer_step", "data", "cudaLaunchKernel"))
def test_short_names_stay_in_sentences(name):
    assert is_harmless(name)
    assert not is_harmless(f"run {name}") and not is_harmless("x" * 99)


def test_every_id_of_an_answer_resolves(tools):
    asked = 0
    of_memory = [
        tools.verdict("leaks.pickle"),
        tools.section("leaks.pickle", "memory"),
        tools.section("leaks.pickle", "step"),
        tools.compare("held.pickle", "leaks.pickle"),
    ]
    captures = (SLOW, "order.trace.json.gz", "mine.trace.json.gz")
    for texts in (*(everything(tools, each, 8000)[:-1] for each in captures), of_memory):
        for text in texts:
            answer = json.loads(text)
            rows = [row["id"] for row in answer.get("rows", []) if "id" in row]
            for name in [*answer.get("evidence", []), *rows[:4]]:
                found = json.loads(tools.evidence(name, tokens=8000))
                assert name not in rows or [row["id"] for row in found["rows"]] == [name]
                asked += 1
    assert asked > 100


def test_a_row_has_all_fields_of_the_record(tools):
    short = json.loads(tools.section(SLOW, "kernels"))["rows"][1]
    (row,) = json.loads(tools.evidence(short["id"]))["rows"]
    assert row["total_ns"] == short["total_ns"] == 19611703
    assert {"med_ns", "stddev_ns", "family"} <= row.keys()


def test_a_step_of_which_only_the_sign_is_known_is_no_number(tools):
    key = json.loads(tools.whatif(SLOW))["rows"][0]["id"].partition("/")[0]
    record = tools.library.record_of(key)
    last = record.predictions[-1]
    assert last.answer == "shorter" and others.predicted(record, key).rows[-1]["step_ms"]
    vague = replace(record, predictions=[replace(last, reason="by how much: it depends")])
    answer = others.predicted(vague, key)
    assert "step_ms" not in answer.rows[0] and answer.rows[0]["high_ms"] == last.high_ms
    assert answer.cannot_tell == ["--graphs: by how much: it depends"]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/etc/passwd", "outside"),
        ("../", "outside"),
        ("link.sqlite.gz", "outside"),
        ("linked", "leads out"),
        ("linked_memory", "a.memory.pickle: is a link that leads out"),
        (f"beside/{SLOW}", "window-1.json: is a link that leads out"),
        ("nothing.sqlite", "no such file"),
        ("a\0b", "null"),
        (".", "leads out"),
    ],
)
def test_a_path_outside_of_the_root_is_refused(tools, place, why):
    for ask in (
        lambda: tools.open(place),
        lambda: tools.section(place, "step"),
        lambda: tools.compare(SLOW, place),
        lambda: tools.whatif(place),
        lambda: tools.scale(place),
    ):
        with pytest.raises(ValueError, match=why):
            ask()


def test_an_id_that_is_not_known_is_refused_with_what_there_is(tools):
    key = json.loads(tools.open(SLOW))["evidence"][0]
    for name, why in (
        ("12345678/kernel", "call open"),
        (f"{key}/nope", "there are step, typical, kernel"),
        (f"{key}/kernel/77", "from 0 to 76"),
        (f"{key}/kernel/1/2", "from 0 to 76"),
    ):
        with pytest.raises(ValueError, match=why):
            tools.evidence(name)
    changed = json.loads(tools.compare(SLOW, "flash_eager.sqlite.gz"))["evidence"][0]
    with pytest.raises(ValueError, match="is no capture"):
        tools.verdict(changed.split("/")[0])


def test_a_run_without_a_capture_says_what_would_tell(tools):
    answer = json.loads(tools.verdict("run"))
    assert answer["numbers"]["best_val_loss"]["value"] == 1.52
    assert "profile=nsys" in answer["cannot_tell"][0] and "dashboard run" in answer["next"]


def test_a_verb_starts_with_its_output_kept_from_the_protocol(tools, capfd):
    answer = json.loads(tools.run(["nowhere/python", "mine.py"]))
    assert capfd.readouterr().out == ""
    assert answer["sentence"] == "It ended with exit code 127." and answer["cannot_tell"]
    assert "nowhere/python" in str(answer["names_from_capture"])


def test_a_start_ends_with_the_verdict_or_the_comparison(tools, root, monkeypatch):
    seen = []
    (root / "out-ab").mkdir()
    shutil.copytree(root / "run", root / "out-mine")
    (root / "out-mine" / "profile").mkdir()
    shutil.copy(root / SLOW, root / "out-mine" / "profile")

    def started(words: list[str]) -> mcp.Ended:
        seen.append(words)
        for word in words:
            if word.startswith("--json="):
                shutil.copy(EXPERIMENT, word.removeprefix("--json="))
        return mcp.Ended(0, ["done"])

    monkeypatch.setattr(mcp, "start", started)
    verdict = json.loads(tools.run(["python", "mine.py"], "out-mine", 7))
    assert verdict["sentence"].startswith("Bound by GPU memory bandwidth")
    assert seen[0] == ["run", "--out=out-mine", "--steps=7", "--", "python", "mine.py"]
    changed = json.loads(tools.ab(["python", "a.py"], ["python", "b.py"], steps=9))
    assert len(changed["numbers"]["ratio"]["interval"]) == 2 and "home out-ab" in changed["next"]
    assert seen[1][3:] == ["--steps=9", "--", "python", "a.py", ":::", "python", "b.py"]
    with pytest.raises(ValueError, match="outside"):
        tools.run(["true"], "/tmp/elsewhere")


def test_a_bisection_ends_with_the_commit_or_says_that_there_is_none(tools, root, monkeypatch):
    repository = root / "repository"
    subprocess.run(["git", "init", "-q", repository], check=True)
    (repository / "inside").mkdir()
    visit = Visit("b" * 40, "a" * 40, "bad", None, 1.1, (1.08, 1.12), 10, 9.0, [1.1])
    new = Bisection(2, "a" * 40, "c" * 40, "python x.py", None, 20, 1.0, [visit], ["b" * 40])
    said, seen = [replace_struct(new, named="b" * 40, sentence="bbbbbbbbbb is slower"), new], []

    def started(words: list[str], folder) -> mcp.Ended:
        seen.append((words, str(folder)))
        place = next(word for word in words if word.startswith("--json="))
        Path(place.removeprefix("--json=")).write_text(to_json(said[len(seen) - 1]))
        return mcp.Ended(0, ["done"])

    monkeypatch.setattr(mcp, "start", started)
    asked = ("v1", "HEAD", ["python", "x.py", "; rm -rf /"], "repository/inside")
    named, none = (json.loads(tools.bisect(*asked)) for _ in said)
    (words, folder), _ = seen
    assert folder == "repository/inside" and words[:3] == ["bisect", "v1", "HEAD"]
    assert words[words.index("--") :] == ["--", "python", "x.py", "; rm -rf /"]
    assert named["numbers"]["ratio"]["interval"] == [1.08, 1.12]
    assert named["next"] == "git show bbbbbbbbbb" and named["rows"][0]["told"] == "bad"
    assert none["sentence"] == "No commit is named." and "bbbbbbbbbb" in none["cannot_tell"][0]
    for revision, where, why in (
        ("--out=/tmp/x", "repository", "is no revision"),
        ("v1", "..", "outside"),
        ("v1", "run", "in no git repository"),
    ):
        with pytest.raises(ValueError, match=why):
            tools.bisect(revision, "HEAD", ["true"], where)
    monkeypatch.chdir(repository / "inside")  # the repository begins above the root
    with pytest.raises(ValueError, match="outside"):
        mcp.Tools().bisect("v1", "HEAD", ["true"])
    assert len(seen) == 2


def test_a_memory_snapshot_is_answered_about(tools):
    for place in ("held.pickle", "with_memory"):
        answer = json.loads(tools.verdict(place))
        assert answer["numbers"]["peak"]["value"] == 17 * BLOCK and "cannot_tell" not in answer
    rows = json.loads(tools.section("leaks.pickle", "memory", n=6))["rows"]
    assert [row["id"].split("/")[1] for row in rows] == ["kind"] * 5 + ["line"]
    (leak,) = json.loads(tools.verdict("leaks.pickle"))["rows"]
    assert leak["bytes_per_step"] == BLOCK
    assert "profile=nsys" in json.loads(tools.section("held.pickle", "kernels"))["cannot_tell"][0]
    changed = json.loads(tools.compare("held.pickle", "leaks.pickle"))
    assert "more at the peak" in changed["sentence"] and changed["numbers"]["ratio"]["value"] > 1.2
    for ask in (tools.whatif, tools.scale):
        assert "is a pickle" in json.loads(ask("held.pickle"))["cannot_tell"][0]
    with pytest.raises(ValueError, match="is no memory snapshot"):
        tools.compare("held.pickle", SLOW)


def page_of(record) -> str:
    match record:
        case Report():
            return page(report_document(record))
        case RanksReport():
            return page(ranks_document(record))
        case MemoryReport():
            return page(memory_document(record, "held"))
        case MemoryComparison():
            return page(memory_comparison.comparison_document(record, ("one", "other")))
        case Comparison():
            return page(comparison_document(record))
        case WhatIf():
            return page(whatif_document(record))
    return page(scale_document(record))


def test_every_id_is_an_anchor_of_the_page(root, monkeypatch):
    """A row's own, or that of the only one of its kind; each once."""
    monkeypatch.chdir(root)
    tools = mcp.Tools()
    for capture in (SLOW, "flash_metrics.sqlite.gz", "mine.trace.json.gz", "ranks", "leaks.pickle"):
        tools.open(capture)
    tools.compare(SLOW, "flash_eager.sqlite.gz", force=True)
    tools.compare("held.pickle", "leaks.pickle")
    tools.whatif("flash_eager.sqlite.gz")
    records = [kept.record for kept in tools.library.kept.values()]
    assert len(set(map(type, records))) == 6
    for record in records:
        anchors = re.findall(r' id="([^"]+)"', page_of(record))
        assert len(anchors) == len(set(anchors))
        for kind, rows in tables(record).items():
            own = {f"{kind}/{number}" for number in range(len(rows))}
            assert own <= set(anchors) or (len(rows) == 1 and kind in anchors), (type(record), kind)


ALL_TOOLS = """
import sys
from profiling.verbs.mcp import Tools
tools = Tools()
tools.verdict("tests/captures/slow_eager.sqlite.gz")
tools.verdict("profiling/examples/late_rank")
tools.compare("profiling/examples/runs/slow-1", "profiling/examples/runs/flash-1")
tools.whatif("tests/captures/slow_eager.sqlite.gz")
tools.scale("tests/captures/slow_eager.sqlite.gz")
print("torch" in sys.modules)
"""


def test_the_tools_need_no_torch():
    words = [sys.executable, "-c", ALL_TOOLS]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    for name in ("mcp", "mcp.server"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"^needs the package mcp: pip install 'mcp>=2,<3'$"):
        mcp.main([])


def test_lines_of_the_program_are_rows_with_names_apart():
    found = LineSum("a.py:7", "forward", True, [], 2, 3_000_000, 1.5, 75.0, {"launch": 1.5}, "gemm")
    report = replace(
        report_of("flash_eager"), lines=Lines("kernels", 4_000_000, 3_000_000, 0, 75.0, [found])
    )
    answer = sections.section(report, "k", "lines")
    assert answer.numbers["with_line"].value == 75.0 and not answer.cannot_tell
    (row,) = answer.rows
    assert (row["id"], row["place"], row["ms"]) == ("k/line/0", Name("a.py:7"), 1.5)
    assert rows_at(report, "k", ["line", "0"]).rows[0]["longest"] == Name("gemm")
    (why,) = sections.section(report_of("flash_eager"), "k", "lines").cannot_tell
    assert "profile.stack=true" in why
