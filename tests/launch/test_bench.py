"""`python -m profiling bench`: the runs of both sides, what it reads, and its conclusions.

The other checkout is a small fake, truly run; NANOGPT=DIR in the environment adds a real one.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cli.keys import keys
from configs.sampling import SampleConfig
from profiling.analysis.bench.bench_records import Asked, Bench, Evaluation, TimedProcess, Work
from profiling.analysis.bench.result import measures, whole_work
from profiling.launch.bench import plan as plan_of_bench
from profiling.launch.bench import printed
from profiling.launch.bench.checkout import open_checkout, overrides
from profiling.launch.bench.plan import Plan, Trial, check_words, command, trials
from profiling.launch.bench.printed import Line, sampling_s, training
from profiling.report.bench.document import bench_document
from profiling.report.renderers.markdown import markdown
from profiling.report.renderers.page import page
from profiling.tools.nsys_tool import Nsys
from profiling.verbs import bench as verb
from tests.helpers.pace import PACE

TINY = "device=cpu compile=false n_layer=1 n_head=1 n_embd=8 block_size=16 batch_size=2 dropout=0"
FEW = "--steps 20 --iterations 70 --tokens 4 --samples 3"
CONFIGURATOR = """\
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if "=" not in arg:
        exec(open(arg).read())
        continue
    key, value = arg[2:].split("=")
    assert key in globals(), key
    try:
        value = literal_eval(value)
    except (SyntaxError, ValueError):
        pass
    assert type(value) == type(globals()[key]), arg
    globals()[key] = value
"""
TRAIN = """\
import os, pickle, sys, time
out_dir = 'out'
eval_interval = 2000
log_interval = 1
eval_iters = 200
always_save_checkpoint = True
gradient_accumulation_steps = 5 * 8
batch_size, block_size = 12, 1024
batch_size = 12
block_size = 1024
n_layer = 12
dropout = 0.0
max_iters = 600000
learning_rate = 6e-4
device = 'cuda'
dtype = 'bfloat16' if device == 'x' else 'float16'
compile = True
exec(open('configurator.py').read()) # overrides
if os.environ.get('FAIL') == str(max_iters):
    print('the GPU has left the building')
    raise SystemExit(1)
assert device == 'cpu' and dtype == 'float32' and not compile, (device, dtype)
assert 'GOMP_SPINCOUNT' not in os.environ
tokens = batch_size * block_size * gradient_accumulation_steps
print(f'tokens per iteration will be: {tokens:,}')
vocab = pickle.load(open('data/shakespeare_char/meta.pkl', 'rb'))['vocab_size']
print(f'found vocab_size = {vocab} (inside data/shakespeare_char/meta.pkl)')
print('number of parameters: 7.00M')
os.makedirs(out_dir)
for i in range(max_iters + 1):
    if i % eval_interval == 0:
        time.sleep(1e-4 * eval_iters)
        print(f'step {i}: train loss 4.0, val loss {4 - i / 100:.4f}')
        if i and always_save_checkpoint:
            open(f'{out_dir}/ckpt.pt', 'w').write('weights')
    time.sleep(2e-3)
    if i % log_interval == 0:
        print(f'iter {i}: loss 4.0000, time 0.50ms, mfu -100.00%')
"""
SAMPLE = """\
import time
out_dir = 'out'
num_samples = 10
max_new_tokens = 500
device = 'cuda'
exec(open('configurator.py').read())
assert open(f'{out_dir}/ckpt.pt').read() == 'weights'
print('Loading meta from data/shakespeare_char/meta.pkl...')
for _ in range(num_samples):
    time.sleep(0.01 * max_new_tokens)
    print('a text\\n---------------')
"""
PREPARE = """\
import numpy as np, os, pickle
here = os.path.dirname(__file__)
data = open(os.path.join(here, 'input.txt')).read()
ids = {c: i for i, c in enumerate(sorted(set(data)))}
n = int(len(data) * 0.9)
for split, text in (('train', data[:n]), ('val', data[n:])):
    np.array([ids[c] for c in text], np.uint16).tofile(os.path.join(here, split + '.bin'))
pickle.dump({'vocab_size': len(ids)}, open(os.path.join(here, 'meta.pkl'), 'wb'))
"""
EXPERIMENT = "eval_interval = 250\nlog_interval = 10\ngradient_accumulation_steps = 1\n"
EXPERIMENT += "always_save_checkpoint = False\nbatch_size = 64\nblock_size = 256\nn_layer = 6\n"


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A folder that looks like nanoGPT: 2 ms an iteration, 10 ms a token."""
    folder = tmp_path / "nanoGPT"
    files = {
        "train.py": TRAIN,
        "sample.py": SAMPLE,
        "model.py": "",
        "configurator.py": CONFIGURATOR,
        "config/train_shakespeare_char.py": EXPERIMENT,
        "data/shakespeare_char/prepare.py": PREPARE,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def run(checkout, text_file, project_data, tmp_path, monkeypatch, forked):
    """run(words): `bench` of the tiny model beside the fake checkout; returns the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verb, "find_our_pace", lambda plan: PACE)

    def main(words: str, against: Path = checkout) -> int:
        tiny = [*TINY.split(), f"data_source={text_file}"]
        return verb.main([*tiny, "--against", str(against), *FEW.split(), *words.split()])

    return main


def planned(checkout: Path | None, folder: Path, words: str = TINY) -> Plan:
    opened = open_checkout(checkout) if checkout else None
    asked = Asked(words.split(), checkout and str(checkout), None, 20, 70, 4, 3)
    return Plan(asked, opened, folder)


def process(kind: str, side: str, number: int = 0, **values) -> TimedProcess:
    made = TimedProcess(kind, side, number, ["train.py"], f"runs/{kind}", 10.0)
    return replace(made, **values)


def series(*processes: TimedProcess, **values) -> Bench:
    asked = Asked(["config.yaml"], "/somewhere/nanoGPT", "f00", 300, 1000, 200, 64)
    return Bench(1, asked, "2026-11-22T00:00:00+00:00", list(processes), **values)


@pytest.mark.slow
def test_both_are_run_read_and_compared_and_the_series_goes_on(run, checkout, tmp_path, capsys):
    assert run("--rounds 1 --out b --parts step,run,samples,captured --loss 3.9") == 0
    out = capsys.readouterr().out
    assert f"prepared {checkout}/data/shakespeare_char from our text" in out
    made = json.loads(Path("b/bench.json").read_text())
    order = [(p["kind"], p["side"]) for p in made["processes"]]
    assert order[:4] == [
        ("prepare", "ours"),
        ("prepare", "theirs"),
        ("steps", "ours"),
        ("steps", "theirs"),
    ]
    rows = {(row["part"], row["unit"]): row for row in made["result"]}
    step = {side["side"]: side["median"] for side in rows["step", "ms"]["sides"]}
    assert 2 < step["theirs"] < 200  # from line to line, on a busy machine too; it prints 0.5
    theirs = next(p for p in made["processes"] if (p["kind"], p["side"]) == ("steps", "theirs"))
    assert theirs["printed_ms"] == [0.5, 0.5]  # of iterations 60 and 70
    rate = {side["side"]: side["median"] for side in rows["samples", "tokens/s"]["sides"]}
    assert 5 < rate["theirs"] < 150 and rate["ours"] > 0  # it sleeps 10 ms a token
    assert {s["side"] for s in rows["run", "s"]["sides"]} == {"ours", "theirs", "exact"}
    assert rows["captured", "ratio"]["sides"][0]["side"] == "ours"
    assert all(not row["against"] for row in made["result"])  # of one process each
    work = {row["what"]: row for row in made["work"]}
    assert work["parameters"]["equal"] is False and work["parameters"]["theirs"] == "7.00M"
    assert work["tokens per iteration"]["equal"] and work["vocabulary"]["equal"]
    assert work["n_head"]["equal"] is None and work["seed"]["theirs"] is None
    assert work["evaluations"] == {
        "what": "evaluations",
        "ours": "2",
        "theirs": "1",
        "equal": False,
    }
    assert "not alike: parameters: 0.00M here, 7.00M in nanoGPT" in out
    assert "not alike: evaluations: 2 here, 1 in nanoGPT" in out
    assert not list(Path("b/runs").glob("[!p]*/ckpt.pt"))

    count = len(made["processes"])
    assert run("--rounds 2 --out b --parts step") == 0
    again = json.loads(Path("b/bench.json").read_text())
    assert again["processes"][:count] == made["processes"]
    assert [(p["side"], p["round"]) for p in again["processes"][count:]] == [
        ("theirs", 1),
        ("ours", 1),
    ]
    (pair,) = again["result"][0]["against"]
    assert (pair["baseline"], pair["candidate"]) == ("theirs", "ours")
    assert len(again["work"]) == len(made["work"])
    assert "our time divided by theirs" in Path("b/bench.html").read_text()
    assert "| step | ms |" in Path("b/bench.md").read_text()
    with pytest.raises(ValueError, match="^--out b: contains another series of processes"):
        run("--rounds 2 --out b --parts step grad_clip=2")


@pytest.mark.slow
def test_a_process_that_fails_shows_its_end_and_the_rest_goes_on(run, monkeypatch, capsys):
    monkeypatch.setenv("FAIL", "71")  # the timed one
    with pytest.raises(ValueError, match="^steps, nanoGPT: .* exit code 1; .*train.py") as caught:
        run("--rounds 1 --out b --parts step")
    assert "\n" not in str(caught.value)
    assert "  the GPU has left the building" in capsys.readouterr().out
    monkeypatch.delenv("FAIL")
    assert run("--rounds 1 --out b --parts step") == 0
    assert "3 of this series are already done" in capsys.readouterr().out


@pytest.mark.slow
def test_another_text_is_refused_and_left_as_it_is(run, checkout):
    data = checkout / "data/shakespeare_char"
    for name in ("train.bin", "val.bin", "meta.pkl"):
        (data / name).write_bytes(b"ab")
    with pytest.raises(
        ValueError, match="^--against: .* contains a different text than test-.*remove"
    ):
        run("--rounds 1 --out b --parts step")
    assert (data / "train.bin").read_bytes() == b"ab"


@pytest.mark.slow
def test_without_another_checkout_there_is_ours_alone(
    text_file, project_data, tmp_path, capsys, forked
):
    """Time an iteration of our training first, in a process beside."""
    words = [*TINY.split(), f"data_source={text_file}", *FEW.split(), "--rounds", "1"]
    out = tmp_path / "b"
    assert verb.main([*words, "--parts", "start,end", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "The speed of this project" in said and "answer" not in said
    assert "time per iteration, measured just now: " in said
    made = json.loads((out / "bench.json").read_text())
    assert [row["part"] for row in made["result"]] == ["step", "start", "end"]


@pytest.mark.slow
@pytest.mark.skipif("NANOGPT" not in os.environ, reason="NANOGPT names no checkout of nanoGPT")
def test_beside_the_real_one(run, tmp_path):
    without_text = shutil.ignore_patterns("*.bin", "*.pkl", "input.txt")
    real = shutil.copytree(os.environ["NANOGPT"], tmp_path / "real", ignore=without_text)
    assert run("--rounds 2 --out b --parts step,run,sample", real) == 0
    made = json.loads(Path("b/bench.json").read_text())
    assert all(row["equal"] is not False for row in made["work"] if row["what"] != "evaluations")
    assert [len(row["sides"]) for row in made["result"][:3]] == [2, 2, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--against nowhere", "^--against nowhere: no such folder; give a checkout of nanoGPT"),
        ("--against empty", "^--against empty: contains no train.py; give a checkout of nanoGPT"),
        ("--parts stpe", "^--parts stpe: no such part; use step, start"),
        ("--steps 25", "^--steps 25: must be a multiple of 10"),
        ("--rounds 0", "--rounds: 0: must be at least 1"),
        ("--iterations 10", "--iterations: 10: must be at least 70"),
        ("--agianst x", "arguments: --agianst; did you mean --against"),
        ("max_iters=10", "^max_iters: bench sets it itself; use --iterations"),
        ("--out_dir=x", "^out_dir: bench sets it itself; use --out"),
        ("n_lyaer=2", "^n_lyaer: no such key; did you mean n_layer"),
        ("--html nowhere/x.html", "nowhere/x.html: the folder nowhere does not exist"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=message):
        verb.main([*TINY.split(), *words.split()])
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_byte_pairs_are_refused_beside_characters(checkout):
    with pytest.raises(ValueError, match="^dataset=shakespeare_bpe: --against trains on char"):
        verb.main(["dataset=shakespeare_bpe", "--against", str(checkout)])


@pytest.mark.slow
def test_dry_run_prints_the_commands_and_starts_nothing(checkout, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [*TINY.split(), "--against", str(checkout), "--dry-run", "--rounds", "1"]
    assert verb.main([*words, "--parts", "run,sample"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7 and not Path("out-bench").exists()
    assert sum(line.startswith(f"cd {checkout} && ") for line in lines) == 3


def test_the_keys_of_a_checkout_are_read_off_its_sources(checkout):
    opened = open_checkout(checkout)
    assert opened.train["n_layer"] == 6 and opened.train["max_iters"] == 600000
    assert opened.train["dtype"] is None  # computed
    assert not {"tokens", "vocab"} & opened.train.keys()  # behind the configurator
    assert opened.commit is None and opened.name == "nanoGPT"


def test_it_is_told_what_differs_and_it_knows(checkout, tmp_path):
    plan = planned(checkout, tmp_path / "b", f"{TINY} n_head=2 attention=slow learning_rate=2e-3")
    where, words = command(plan, Trial("run", "theirs", 0), {"device": "cpu", "dtype": "float32"})
    assert where == checkout
    assert words[1:4] == ["-u", "train.py", "config/train_shakespeare_char.py"]
    told = dict(word[2:].split("=") for word in words[4:])
    assert told.pop("out_dir") == str(tmp_path / "b/runs/run-theirs-1")
    assert told == {
        "n_layer": "1",
        "block_size": "16",
        "batch_size": "2",
        "max_iters": "70",
        "learning_rate": "0.002",
        "device": "cpu",
        "dtype": "float32",
        "compile": "False",
    }
    assert overrides({"dropout": 0.0, "n_head": 2, "top_k": None}, {"dropout": 0.2}) == [
        "--dropout=0.0"
    ]


def test_words_of_ours_alone_are_not_told_to_the_other_one(checkout, tmp_path):
    plan = planned(checkout, tmp_path, TINY.replace("compile=false", ""))
    plan = replace(plan, asked=replace(plan.asked, ours=["compile=false", "n_embd=48"]))
    ours, theirs = (command(plan, Trial("steps", side, 0), {})[1] for side in ("ours", "theirs"))
    assert {"compile=false", "n_embd=48"} <= set(ours)
    assert not [word for word in theirs if "compile" in word or word.endswith("=48")]
    with pytest.raises(ValueError, match="max_iters: bench sets it itself"):
        check_words(replace(plan, asked=replace(plan.asked, ours=["max_iters=5"])))


def test_samplers_are_told_what_each_knows(checkout, tmp_path):
    def keys_for(side: str) -> set[str]:
        words = command(planned(checkout, tmp_path), Trial("samples", side, 0), {})[1][3:]
        assert [word for word in words if word.endswith("num_samples=3")]
        return {word.removeprefix("--").split("=")[0] for word in words}

    assert keys_for("ours") <= keys(SampleConfig).keys()
    assert keys_for("theirs") == {"out_dir", "num_samples", "max_new_tokens", "device"}


@pytest.mark.slow
def test_evaluations_are_as_many_batches_as_the_other_one_has(checkout, tmp_path):
    def words(side, kind="run", more=""):
        plan = planned(checkout, tmp_path, f"{TINY} {more}")
        return command(plan, Trial(kind, side, 1), {})[1], plan.sides("run")

    ours, sides = words("ours")
    assert "eval_iters=200" in ours and "seed=1338" in ours and sides == ["ours", "theirs", "exact"]
    assert not any(word.startswith("eval_iters") for word in words("exact")[0])
    assert "--eval_iters=7" in words("theirs", more="eval_iters=7")[0]
    assert words("ours", more="eval_iters=7")[1] == ["ours", "theirs"]


def test_sides_take_turns_and_ours_goes_alone_where_it_is_alone(checkout, tmp_path):
    found = trials(planned(checkout, tmp_path), ["steps", "captured"], 2)
    assert [(t.kind, t.side) for t in found] == [
        ("prepare", "ours"),
        ("prepare", "theirs"),
        ("steps", "ours"),
        ("steps", "theirs"),
        ("captured", "ours"),
        ("steps", "theirs"),
        ("steps", "ours"),
        ("captured", "ours"),
    ]
    alone = trials(planned(None, tmp_path), ["run"], 1)
    assert [(t.kind, t.side) for t in alone] == [("prepare", "ours"), ("run", "ours")]


def test_steps_lie_between_lines_behind_the_warm_up_without_evaluations():
    lines = ["step 0: train loss 4.1, val loss 4.2"]
    lines += [f"iter {i}: loss 4.0, time 1.00ms, mfu 0.00%" for i in (0, 10, 20)]
    lines += ["step 25: train loss nan, val loss 3.9"]
    lines += [f"iter {i}: loss 4.0, time 2.00ms, 5k tokens/s" for i in (30, 40)]
    found = training([Line(at, text) for at, text in enumerate(lines)])
    assert [(row.iteration, ms) for row, ms in found.steps(10)] == [(20, 100.0), (40, 100.0)]
    assert found.iterations == 41
    assert found.evaluations == [Evaluation(0, 0, 4.2), Evaluation(25, 4, 3.9)]


def test_lines_get_the_time_at_which_their_end_came(tmp_path, monkeypatch):
    times = iter([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(printed.time, "perf_counter", lambda: next(times))
    with open(tmp_path / "log", "wb") as file:
        output = printed.StampedOutput(file)
        for chunk in (b"a\nb", b"c\n", b"d"):
            output.write(chunk)
    assert output.lines == [Line(1.0, "a"), Line(2.0, "bc")]
    assert (tmp_path / "log").read_bytes() == b"a\nbc\nd"


def test_sampling_is_timed_without_the_start_of_the_process():
    theirs = ["number of parameters: 10.65M", "Loading meta from data", "x", "-" * 15, "-" * 15]
    assert sampling_s([Line(at, text) for at, text in enumerate(theirs)], 100) == 3
    ours = [
        "cpu, float32, attention auto",
        "text",
        "-" * 15,
        "1,000 tokens in 0.5 s: 2,000 tokens/s",
    ]
    assert sampling_s([Line(at, text) for at, text in enumerate(ours)], 1000) == 0.5
    assert sampling_s([Line(0.0, "Loading meta from data")], 10) is None


def test_ratios_are_of_times_with_the_interval_of_ab():
    steps = [process("steps", "theirs", row_ms=[ms]) for ms in (7.0, 7.1, 7.2)]
    steps += [process("steps", "ours", row_ms=[ms]) for ms in (3.5, 3.55, 3.6)]
    tokens = [process("sample", "theirs", tokens=100, sampling_s=s) for s in (0.2, 0.21)]
    tokens += [process("sample", "ours", tokens=100, sampling_s=s) for s in (0.1, 0.105)]
    found = {row.part: row for row in measures(series(*steps, *tokens))}
    (step,), (sample,) = found["step"].against, found["sample"].against
    assert step.verdict == "faster" and step.ratio == pytest.approx(0.5)
    low, high = step.ci95
    assert low < 0.5 < high
    assert sample.ratio == pytest.approx(0.5)  # twice the rate
    assert [side.median for side in found["sample"].sides] == pytest.approx([488, 976], rel=0.01)
    assert not found["step"].against[0].processes_to_tell


def test_the_other_one_is_captured_as_a_whole_process(checkout, tmp_path, monkeypatch):
    nsys = Nsys("/opt/nsys", "2025.3", {"trace": "cuda nvtx", "sample": "none"}, {})
    monkeypatch.setattr(plan_of_bench.nsight, "installed_programs", lambda tool: [nsys])
    monkeypatch.setattr(plan_of_bench.nsys_tool, "find", lambda: nsys)
    assert planned(checkout, tmp_path).sides("captured") == ["ours"]  # on a CPU
    plan = planned(checkout, tmp_path, "compile=false")
    assert plan.sides("captured") == ["ours", "theirs"]
    trial = Trial("captured", "theirs", 0)
    _, words = command(plan, trial, {"device": "cuda"})
    report = tmp_path / "runs/captured-theirs-1.nsys-rep"
    options = ["--trace=cuda,nvtx", "--sample=none", "--force-overwrite=true"]
    assert words[:7] == ["/opt/nsys", "profile", *options, "-o", str(report)]
    assert words[8:10] == ["-u", "train.py"] and "--max_iters=71" in words
    with pytest.raises(ValueError, match="^nsys captures CUDA, but this device is cpu"):
        command(plan, trial, {"device": "cpu"})


def test_a_captured_process_counts_over_free_ones():
    made = [process("steps", "theirs", row_ms=[ms]) for ms in (7.0, 8.0, 9.0)]
    made += [process("captured", "theirs", row_ms=[10.0])]
    made += [process("captured", "ours", captured_ratio=1.03)]
    row = next(row for row in measures(series(*made)) if row.part == "captured")
    assert [(side.side, side.values) for side in row.sides] == [
        ("theirs", [1.25]),
        ("ours", [1.03]),
    ]
    assert not row.against and row.remark.startswith("the other program: a whole process")


def test_a_loss_that_was_not_reached_is_none_and_said():
    def whole_process(side, *losses):
        made = [Evaluation(250 * i, 10.0 * i, loss) for i, loss in enumerate(losses)]
        return process("run", side, evaluations=made, iterations=500)

    bench = series(
        whole_process("theirs", 4.2, 1.5),
        whole_process("ours", 4.2, 1.46),
        whole_process("ours", 4.2, 1.47),
    )
    row = next(row for row in measures(bench) if row.part == "loss")
    assert [(side.side, side.values) for side in row.sides] == [("ours", [10.0, 10.0])]
    assert row.remark == "not always reached: theirs came to 1.5000" and not row.against


def test_mfu_is_of_one_count_for_both_where_the_peak_is_known():
    steps = [process("steps", "theirs", row_ms=[8.0]), process("steps", "ours", row_ms=[4.0])]
    flops = int(989.4e12 * 2e-3)  # 2 ms at the peak
    bench = series(*steps, device="NVIDIA H200", dtype="bfloat16", flops_per_step=flops)
    row = next(row for row in measures(bench) if row.unit == "%")
    assert [side.median for side in row.sides] == pytest.approx([25, 50])
    on_cpu = series(*steps, device="cpu", dtype="float32", flops_per_step=flops)
    assert [row.unit for row in measures(on_cpu) if row.part == "step"] == ["ms"]


def test_what_was_counted_is_not_told_twice():
    runs = [process("run", "ours", iterations=100), process("run", "theirs", iterations=101)]
    bench = series(*runs, work=[Work("parameters", "1M", "1M", True)])
    once = whole_work(bench)
    assert [row.what.split(";")[0] for row in once] == ["parameters", "iterations", "evaluations"]
    assert all(row.equal for row in once)
    assert whole_work(series(*runs, work=once)) == once


@pytest.mark.parametrize(("equal", "said"), [(True, "the same work: "), (False, "not alike")])
def test_table_and_picture_say_whether_the_work_is_the_same(equal, said):
    steps = [process("steps", "theirs", row_ms=[ms]) for ms in (7.0, 7.1)]
    steps += [process("steps", "ours", row_ms=[ms]) for ms in (3.5, 3.55)]
    made = [Evaluation(0, 3.0, 4.2), Evaluation(250, 9.0, 1.6)]
    runs = [process("run", side, evaluations=made) for side in ("ours", "theirs", "exact")]
    bench = series(*steps, *runs, work=[Work("parameters", "1M", "2M", equal)])
    bench = verb.replace(bench, result=measures(bench))
    document = bench_document(bench, 2.0)
    text, html = markdown(document), page(document)
    for words in (text, html):
        assert said in words and "2.00x faster" in words and "7.05 (7.00 to 7.10)" in words
        assert "ratio of times 0.500, 95 % interval 0.4" in words
    assert '"ratios"' in html and '"losses"' in html and '"whole"' in html
    assert "whole run, exact, 1,000 iterations, 2 evaluations" in text


def test_our_tokens_are_those_of_its_prepare(checkout, text_file, tmp_path, project_data):
    from configs.data import DataConfig
    from data.prepare import prepare
    from profiling.launch.bench.checkout import prepare_text

    ours = prepare(DataConfig(data_source=str(text_file)), tmp_path / "data")
    opened = open_checkout(checkout)
    assert not prepare_text(opened, ours, tmp_path / "log")
    theirs = np.fromfile(checkout / "data/shakespeare_char/val.bin", np.uint16)
    assert np.array_equal(theirs, ours.tokens("val").read_all())
    assert prepare_text(opened, ours, tmp_path / "log")  # it is there
