"""Benchmark scaling: the commands of both sides, real processes, the table."""

import pytest

from benchmarks import scaling
from benchmarks.__main__ import BENCHMARKS
from benchmarks.scaling import THEIRS, Process, ScalingConfig, command, row
from profiling.launch import process
from tests.helpers.forked import FORKING


def test_both_sides_do_one_micro_step_on_each_rank(tmp_path):
    config = ScalingConfig(words="dropout=0", against=str(tmp_path), theirs="config/x.py --a=1")
    _, alone = command(Process("parallel=ddp", 1), config, tmp_path / "out")
    folder, four = command(Process(THEIRS, 4), config, tmp_path / "out")
    assert alone[:4] == ["train.py", "gpt2_124m", "dropout=0", "parallel=ddp"]
    assert "gradient_accumulation_steps=1" in alone and f"out_dir={tmp_path}/out" in alone
    assert folder == tmp_path and four[:4] == [
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4",
    ]  # fmt: skip
    assert four[4:7] == ["train.py", "config/x.py", "--a=1"]
    assert "--gradient_accumulation_steps=4" in four


def test_a_row_says_what_is_kept():
    assert row(Process("", 4), [25.0, 24.0, 26.0], 20.0) == (
        "| as it is | 4 | 25.00 (24.00, 26.00) | 80.0 % |"
    )


def kept_of(printed: str) -> list[str]:
    lines = printed.split(scaling.HEADER)[1].split("\n")[1:-1]
    return [" ".join(line.strip("| ").split(" | ")[at] for at in (0, 1, 3)) for line in lines]


def test_several_gpus_are_held_against_the_slowest_of_them(tmp_path, monkeypatch, capsys):
    took_ms = {"1 (GPU 0)": 19.0, "1 (GPU 1)": 20.0, "2": 25.0}
    seen = []

    def step_ms(process, config, out):
        seen.append((process.where, process.environ.get("CUDA_VISIBLE_DEVICES")))
        return took_ms[process.where]

    monkeypatch.setattr(scaling, "step_ms", step_ms)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    BENCHMARKS.run(["scaling", "ranks=1,2", "alone=1,0", "rounds=1", f"out={tmp_path}/out"])
    assert seen == [("1 (GPU 0)", "0"), ("1 (GPU 1)", "1"), ("2", None)]
    printed = capsys.readouterr()
    assert printed.err.splitlines()[1:] == [
        "round 1 of 1: as it is, ranks 1 (GPU 1): 20.00 ms per step",
        "round 1 of 1: as it is, ranks 2: 25.00 ms per step",
    ]
    assert kept_of(printed.out) == [
        "as it is 1 (GPU 0) 105.3 %", "as it is 1 (GPU 1) 100.0 %", "as it is 2 80.0 %",
    ]  # fmt: skip


def test_ways_are_for_several_ranks_and_nanogpt_is_held_against_itself(
    tmp_path, monkeypatch, capsys
):
    """train.py refuses fsdp, and a shared update, on one rank."""
    took_ms = {("", 1): 20.0, ("a=1", 2): 21.0, ("b=2", 2): 25.0, (THEIRS, 1): 30.0,
               (THEIRS, 2): 40.0}  # fmt: skip
    monkeypatch.setattr(scaling, "step_ms", lambda p, *_: took_ms[p.way, p.ranks])
    (tmp_path / "train.py").touch()
    words = ["ranks=1,2", "ways=a=1; b=2", f"against={tmp_path}", f"out={tmp_path}/out"]
    BENCHMARKS.run(["scaling", *words])
    assert kept_of(capsys.readouterr().out) == [
        "as it is 1 100.0 %", "nanoGPT 1 100.0 %", "a=1 2 95.2 %", "b=2 2 80.0 %",
        "nanoGPT 2 75.0 %",
    ]  # fmt: skip
    BENCHMARKS.run(["scaling", "ranks=2", *words[1:]])
    kept = ["a=1 2 100.0 %", "b=2 2 100.0 %", "nanoGPT 2 100.0 %"]
    assert kept_of(capsys.readouterr().out) == kept


@pytest.mark.parametrize("stopped", [KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("done", [1, 3])
def test_a_stopped_measurement_has_the_rows_so_far(done, stopped, tmp_path, monkeypatch, capsys):
    times_ms = iter([20.0, 25.0, 27.0][:done])

    def step_ms(*_):
        if (ms := next(times_ms, None)) is None:
            raise stopped
        return ms

    monkeypatch.setattr(scaling, "step_ms", step_ms)
    with pytest.raises(type(stopped)):
        BENCHMARKS.run(["scaling", "ranks=1,2", "rounds=2", f"out={tmp_path}/out"])
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == done
    if done == 1:  # several ranks have no time yet
        assert not printed.out
    else:
        assert printed.out.endswith("| as it is | 2 | 26.00 (25.00, 27.00) | 76.9 % |\n")


@pytest.mark.parametrize(
    "words, message",
    [
        ("alone=0,a", "alone=0,a: not numbers by comma"),
        ("ranks=1,x", "ranks=1,x: not numbers by comma"),
        ("ranks=0", "ranks=0: not numbers"),
        ("against=nowhere", "against=nowhere: no checkout of nanoGPT"),
        ("warm_up=70", "warm_up=70: leaves less than 20 of 80"),
    ],
)
def test_mistakes_are_named_before_a_folder_is_made(words, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        BENCHMARKS.run(["scaling", *words.split(), f"out={tmp_path}/out"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_one_rank_and_two_are_trained_and_timed(
    text_file, tmp_path, capsys, project_data, monkeypatch
):
    monkeypatch.setattr(process, "subprocess", FORKING)
    small = f"n_layer=1 n_head=2 n_embd=32 block_size=32 data_source={text_file}"
    words = ["config=shakespeare_char_cpu", f"words={small}", "rounds=1", "iterations=80"]
    BENCHMARKS.run(["scaling", "ranks=2,1", *words, f"out={tmp_path}/out"])
    _, _, one, two = capsys.readouterr().out.splitlines()[-4:]
    assert one.startswith("| as it is | 1 | ") and one.endswith("| 100.0 % |")
    assert two.startswith("| as it is | 2 | ")
    assert (tmp_path / "out" / "as-it-is-2" / "metrics.jsonl").exists()
