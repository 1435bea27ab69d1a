"""What each rank more keeps of a step: the commands of both sides, real processes, the table."""

import pytest

from benchmarks.__main__ import main
from benchmarks.scaling import THEIRS, Process, ScalingConfig, command, row


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
        "| as it is | 4 | 25.00 (24.00, 26.00) | 80.0% |"
    )


@pytest.mark.parametrize(
    "words, message",
    [
        ("ranks=1,x", "ranks=1,x: not numbers of GPUs"),
        ("ranks=0", "ranks=0: not numbers"),
        ("against=nowhere", "against=nowhere: no checkout of nanoGPT"),
        ("warm_up=70", "warm_up=70: leaves less than 20 of 80"),
    ],
)
def test_mistakes_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        main(["scaling", *words.split()])


@pytest.mark.slow
def test_one_rank_and_two_are_trained_and_timed(text_file, tmp_path, capsys, project_data):
    small = f"n_layer=1 n_head=2 n_embd=32 block_size=32 data_source={text_file}"
    words = ["config=shakespeare_char_cpu", f"words={small}", "rounds=1", "iterations=50"]
    main(["scaling", "ranks=2,1", *words, f"out={tmp_path}/out"])
    _, _, one, two = capsys.readouterr().out.splitlines()[-4:]
    assert one.startswith("| as it is | 1 | ") and one.endswith("| 100.0% |")
    assert two.startswith("| as it is | 2 | ")
    assert (tmp_path / "out" / "as-it-is-2" / "metrics.jsonl").exists()
