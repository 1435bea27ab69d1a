"""docs/own_program.md: its snippets run, its commands exist, and its report is the real one."""

import ast
import gzip
import json
import os
import re
import shlex
import sys
from contextlib import contextmanager, nullcontext
from importlib import import_module
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from profiling import attach
from profiling.__main__ import VERBS
from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.host_activity import DATA_PHASES
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.found import rank_in_name
from profiling.launch.command import FULL, LIGHT
from profiling.shared.own_program import program_in
from profiling.timeline import opening
from profiling.verbs import ab, baseline, bench, bisect, report, run
from tests.helpers.forked import Forked
from tests.helpers.programs import MS, Program
from tests.paths import CAPTURES, PROJECT

PAGE = (PROJECT / "docs" / "own_program.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINES = [line for of, block in BLOCK.findall(PAGE) if not of for line in block.splitlines()]
PHASES = ["data", "forward", "backward", "optimizer"]
OURS = [
    shlex.split(line.removeprefix("$ "))[3:]
    for line in LINES
    if "python -m profiling " in line and " -- " not in line  # of whole programs: tests/attach
]
NSYS = [shlex.split(line) for line in LINES if "nsys profile " in line]


def snippets(section: str) -> list[str]:
    return [block for language, block in BLOCK.findall(SECTIONS[section]) if language == "python"]


def test_each_section_is_there_and_is_led_to():
    anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in SECTIONS]
    assert re.findall(r"\]\(#([^)]+)\)", PAGE.partition("\n## ")[0]) == anchors
    assert [len(snippets(title)) for title in SECTIONS] == [0, 0, 3, 1, 1, 1, 1, 1, 1, 0, 0]
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (PROJECT / "docs" / target).is_file(), target


@pytest.mark.parametrize("title", SECTIONS)
def test_each_snippet_is_python(title):
    for snippet in snippets(title):
        ast.parse(snippet)


@pytest.mark.slow
def test_the_program_under_torch_profiler_is_read_with_steps_and_phases(tmp_path):
    """The program is forked from a process that has torch."""
    (snippet,) = snippets("torch.profiler")
    program = Forked(["-c", snippet], dict(os.environ), folder=tmp_path)
    said = program.communicate(timeout=120)[0]
    assert program.wait() == 0, said
    found = open_report(tmp_path / "mine.trace.json.gz").report
    slow_first = found.window.left_out_ms is not None  # the profiler's start may lie in it
    assert found.window.steps + slow_first == 10
    assert found.window.step_name == "ProfilerStep"
    assert found.window.first_iteration == 12 + slow_first
    assert found.window.phases_from == "ranges"
    assert [phase.name for phase in found.phases] == PHASES
    assert found.bottleneck.verdict in ("cpu_only", "cpu", "data")  # as the share of data says


def test_the_loop_under_nsys_opens_its_window_and_ranges_each_phase(monkeypatch):
    """Writes down what nsys would see, on any machine."""
    seen: list[str] = []

    @contextmanager
    def ranged(name):
        seen.append(name)
        yield

    monkeypatch.setattr(torch.cuda.nvtx, "range", ranged)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: seen.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: seen.append("stop"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: seen.append("synchronize"))
    model = torch.nn.Linear(2, 2)
    names = {
        "batches": ((torch.ones(1, 2), torch.ones(1, 2)) for _ in count()),
        "model": model,
        "loss_of": torch.nn.functional.mse_loss,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
    }
    exec(compile(snippets("Nsight Systems")[0], "page", "exec"), names)
    window = seen[seen.index("start") + 1 : seen.index("stop")]
    assert window.pop() == "synchronize"
    steps = [[f"iteration {number}", *PHASES] for number in range(100, 120)]
    assert window == [name for step in steps for name in step]


def test_names_of_the_page_are_those_that_report_knows():
    program = Program()
    for number in range(6):
        begin = program.host
        for name in PHASES:
            start = program.host
            program.launch(MS)
            program.build.range(start, program.host, name, domain=None)
        program.build.range(begin, program.host, f"iteration {number}", domain=None)
    steps = Analysis(program.trace()).steps
    assert (steps.name, len(steps.start_ns)) == ("iteration", 6)
    assert len(steps.phases.start_ns) == 6 * len(PHASES)
    told = re.findall(r"`(\w+)`", SECTIONS["What report says"].partition("in the phase")[2])
    assert told[: len(DATA_PHASES)] == list(DATA_PHASES)


@pytest.mark.parametrize(("around", "steps"), [("body", 6), ("step {}", 1), (None, 6)])
def test_steps_without_a_number_are_what_recurs(around, steps):
    """Rule 5 of the page, and what it says of a name with a number in it."""
    program = Program()
    for number in range(6):
        begin = program.host
        for name in PHASES:
            start = program.host
            program.launch(MS)
            program.build.range(start, program.host, name, domain=None)
        if around:
            program.build.range(begin, program.host, around.format(number), domain=None)
    assert len(Analysis(program.trace()).steps.start_ns) == steps
    if steps == 1:
        assert len(Analysis(program.trace(), step="step").steps.start_ns) == 6


def test_inference_without_ranges_is_one_step(tmp_path):
    model = torch.nn.Linear(64, 64)
    with torch.no_grad(), torch.profiler.profile() as profiler:
        for _ in range(4):
            model(torch.randn(8, 64))
    profiler.export_chrome_trace(str(tmp_path / "bare.json"))
    found = open_report(tmp_path / "bare.json").report
    assert found.window.steps == 1 and found.window.step_name is None


def test_a_callback_of_hugging_face_ends_a_step(monkeypatch, tmp_path):
    """Stand-ins call it as the library does, which need not be installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        sys.modules,
        "transformers",
        SimpleNamespace(TrainerCallback=type("TrainerCallback", (), {})),
    )
    trainer = Training("on_step_end", keywords=True)
    exec(compile(snippets("Hugging Face Trainer")[0], "page", "exec"), {"trainer": trainer})
    assert_eight_steps(tmp_path)


def test_a_callback_of_lightning_ends_a_step(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = Training("on_train_batch_end", keywords=False)
    lightning = SimpleNamespace(Callback=type("Callback", (), {}), Trainer=made.with_callbacks)
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, lightning)
    names = {"module": None, "batches": None}
    exec(compile(snippets("Lightning")[0], "page", "exec"), names)
    assert_eight_steps(tmp_path)


class Training:
    """Trains 40 steps, as Trainer of both libraries does, and calls the callbacks behind each."""

    def __init__(self, hook: str, keywords: bool):
        self.hook, self.keywords, self.callbacks = hook, keywords, []

    def with_callbacks(self, max_steps, callbacks):
        self.callbacks = callbacks
        return self

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def train(self):
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(40):
            model(torch.ones(4, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            for callback in self.callbacks:
                named = {"model": model} if self.keywords else {}
                getattr(callback, self.hook)(None, None, None, **named)

    def fit(self, module, batches):
        self.train()


def assert_eight_steps(folder: Path) -> None:
    found = open_report(folder / "mine.trace.json.gz").report
    slow_first = found.window.left_out_ms is not None  # the profiler's start may lie in it
    assert found.window.steps + slow_first == 8
    assert found.window.first_iteration == 12 + slow_first
    assert found.window.phases_from == "operators"
    assert [phase.name for phase in found.phases][:3] == ["forward", "backward", "optimizer"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_callback_ends_a_step_of_attach(monkeypatch, number):
    ended: list[int] = []
    own = SimpleNamespace(Step=lambda: nullcontext(ended.append(1)))
    monkeypatch.setitem(sys.modules, attach.HOOK, own)
    made = Training(("", "on_step_end", "on_train_batch_end")[number], keywords=number == 1)
    callbacks = {name: type(name, (), {}) for name in ("TrainerCallback", "Callback")}
    library = SimpleNamespace(**callbacks, Trainer=made.with_callbacks)
    for name in ("transformers", "lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, library)
    names = {"trainer": made, "module": None, "batches": None}
    exec(compile(snippets("Marks of your own")[number], "page", "exec"), names)
    assert len(ended) == 40


def test_each_rank_saves_a_file_of_its_own(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    names: dict = {}
    exec(compile(snippets("Several ranks")[0], "page", "exec"), names)
    saved: list[str] = []
    names["save"](SimpleNamespace(export_chrome_trace=saved.append))
    assert rank_in_name(Path(saved[0])) == 3 and saved[0].endswith(opening.ENDINGS)


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_each_command_of_ours_parses(words):
    verb, *arguments = words
    assert verb in VERBS
    if verb == "compare":
        arguments = [str(next(CAPTURES.glob("*.sqlite.gz")))] * 2
    parse = import_module(f"profiling.verbs.{verb}").parse
    parse(arguments)


def test_commands_of_nsys_have_what_keeps_a_capture_small():
    assert len(NSYS) == 4
    for words in NSYS:
        given = dict(word[2:].split("=") for word in words if word.startswith("--") and "=" in word)
        assert LIGHT.items() - {("trace", LIGHT["trace"])} <= given.items()
        traced = words[words.index("-t") + 1]
        assert (
            set(LIGHT["trace"].split(","))
            <= set(traced.split(","))
            <= set(FULL["trace"].split(","))
        )
        has_window = given.get("capture-range") == "cudaProfilerApi"
        assert has_window == (given.get("capture-range-end") == "stop")
        assert ("duration" in given) == (given.get("kill") == "none")


def test_report_says_what_is_shown(monkeypatch, capsys):
    """The capture that is shown lies with the other captures of tests."""
    (shown,) = re.findall(r"^```\n\$ (.*)\n((?:.*\n)*?)```$", SECTIONS["What report says"], re.M)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(CAPTURES / "own_program")
    assert report.main(shlex.split(shown[0])[4:]) == 0
    assert capsys.readouterr().out == shown[1]


def test_the_capture_that_is_shown_is_of_the_program_and_scrubbed():
    with gzip.open(CAPTURES / "own_program" / "mine.trace.json.gz") as file:
        trace = json.load(file)
    names = {event["name"] for event in trace["traceEvents"]}
    assert set(PHASES) < names and "ProfilerStep#12" in names
    assert open_report(CAPTURES / "own_program" / "mine.trace.json.gz").report.window.steps == 10


@pytest.mark.parametrize(
    ("verb", "words", "named"),
    [
        (bench, ["mine.py"], "mine.py"),
    ],
)
def test_a_program_of_ones_own_is_refused_with_the_way(verb, words, named):
    with pytest.raises(ValueError) as caught:
        verb.main(words)
    said = str(caught.value)
    assert said.startswith(f"{named}: ") and "docs/own_program.md" in said
    assert said.endswith("then run: python -m profiling compare BEFORE AFTER") and "\n" not in said


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["mine.py"], "-- python mine.py"),
        (["--steps", "5", "python", "mine.py", "--lr=1"], "--steps 5 -- python mine.py --lr=1"),
        (["torchrun", "--nproc_per_node=2", "mine.py"], "-- torchrun --nproc_per_node=2 mine.py"),
        (["bash", "-c", "cd a && python mine.py"], "-- bash -c 'cd a && python mine.py'"),
    ],
)
def test_a_program_without_the_dashes_is_told_where_they_stand(words, typed):
    with pytest.raises(ValueError, match=": a program of your own follows two dashes") as caught:
        run.main(words)
    assert str(caught.value).endswith(f": python -m profiling run {typed}")


@pytest.mark.parametrize(
    ("verb", "words", "typed"),
    [
        (ab, "A=1 python a.py ::: python b.py", "-- A=1 python a.py ::: python b.py"),
        (ab, "--against baseline:main a.py", "--against baseline:main -- python a.py"),
        (baseline, "save main python t.py --lr 3", "save main -- python t.py --lr 3"),
        (baseline, "save b --steps 50 A=b ./b b", "save b --steps 50 -- A=b ./b b"),
        (baseline, "save b b b", "save b -- b b"),
        (baseline, "save python python t.py", "save python -- python t.py"),
        (baseline, "save main t.py", "save main -- python t.py"),
        (bisect, "v1 HEAD ./train --x", "v1 HEAD -- ./train --x"),
    ],
)
def test_a_command_without_the_dashes_gets_them_in_the_message(verb, words, typed):
    with pytest.raises(ValueError, match="put -- before the command: ") as caught:
        verb.main(words.split())
    name = verb.__name__.rpartition(".")[2]
    assert str(caught.value).endswith(f": python -m profiling {name} {typed}")


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("save python t.py --lr 3", "save main -- python t.py --lr 3"),
        ("save t.py", "save main -- python t.py"),
        ("save t.py --lr=3", "save main -- python t.py --lr=3"),
        ("save --steps 50 torchrun t.py", "save --steps 50 main -- torchrun t.py"),
        ("save --out python python t.py", "save --out python main -- python t.py"),
    ],
)
def test_a_baseline_without_a_name_gets_one_in_the_message(words, typed):
    with pytest.raises(ValueError, match=": a name goes before the command, such as main: ") as no:
        baseline.main(words.split())
    assert str(no.value).endswith(f": python -m profiling baseline {typed}")
    flags = baseline.parse(typed.split())
    assert flags.name == "main" and flags.words == typed.partition(" -- ")[2].split()


@pytest.mark.parametrize(("verb", "words"), [(baseline, ["save", "a"]), (bisect, ["a", "b"])])
def test_a_word_before_the_dashes_and_a_wrong_flag_are_no_command(verb, words):
    with pytest.raises(ValueError, match="unrecognized arguments: python; see"):
        verb.main([*words, "python", "--", "python", "t.py"])
    with pytest.raises(ValueError, match="unrecognized arguments: --stepz 5; did you mean --steps"):
        verb.main([*words, "--stepz", "5"])


def test_ab_of_a_program_is_told_how_to_give_two():
    with pytest.raises(ValueError, match=r"^mine\.py: without -- ab only .* ab -- A ::: B$"):
        ab.main(["mine.py", "lr=1,2"])


def test_train_py_itself_is_one_word_too_many():
    with pytest.raises(ValueError, match="run starts this program itself; leave the word out$"):
        run.main([str(PROJECT / "train.py"), "config/shakespeare_char.yaml"])


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["sample.py", "num_samples=3"], "sample.py"),
        (["config/shakespeare_char.yaml", "attention=flash"], None),
        (["config/train_shakespeare_char.py"], None),  # nanoGPT's, which is told as a config
        (["data_source=mine.py"], None),
        (["--dry-run", "--", "-t", "cuda,nvtx"], None),
    ],
)
def test_what_is_taken_for_a_program(words, program):
    assert program_in(words) == program


def test_a_script_is_no_capture_and_the_line_says_where_to_look(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import torch\n")
    with pytest.raises(ValueError, match=r"is a program, not a capture; .*docs/own_program\.md"):
        report.main([str(script)])
