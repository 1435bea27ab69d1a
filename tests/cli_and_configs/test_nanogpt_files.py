"""Configurations of nanoGPT, Python files of key = value lines: read as data, never run."""

from pathlib import Path

import pytest

from cli.keys import keys
from configs.command_line import compose_one
from configs.nanogpt import DEFAULTS, translate_words
from configs.python_files import settings
from configs.schema import Config

MINE = """\
\"\"\"A small one of mine.\"\"\"
# to be run as python train.py mine.py
out_dir = 'out-mine'
wandb_log = True # override via command line if you like
wandb_project = 'shakespeare-char'
wandb_run_name = 'mini-gpt'
backend = 'nccl'
dataset = 'shakespeare_char'
gradient_accumulation_steps = 5 * 8
n_layer = n_head = 2; n_embd = 8 * n_head
max_iters = 4_000
lr_decay_iters = max_iters # as usual
learning_rate = 1e-3
min_lr = learning_rate / 10
weight_decay = -(-1e-2)
compile = False
"""


@pytest.fixture
def composed(tmp_path, monkeypatch):
    """composed(text, *words, name=): the configuration of a file with this text, and of words."""
    monkeypatch.chdir(tmp_path)

    def compose(text: str, *words: str, name: str = "mine.py") -> Config:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
        return compose_one([name, *words])

    return compose


def test_a_file_is_read_under_our_names(composed):
    config = composed(MINE, "--dropout=0.1", "min_lr=1e-5")
    assert (config.n_layer, config.n_head, config.n_embd) == (2, 2, 16)
    assert config.gradient_accumulation_steps == 40
    assert config.lr_decay_iters == config.max_iters == 4000
    assert (config.dropout, config.min_lr, config.weight_decay) == (0.1, 1e-5, 0.01)
    assert not config.compile and config.dataset == "shakespeare_char"
    wandb = config.wandb
    assert (wandb.mode, wandb.project, wandb.name) == ("auto", "shakespeare-char", "mini-gpt")


def test_what_it_leaves_out_is_as_in_nanogpt_s_train_py(composed):
    config = composed("n_head = 4\n")
    assert (config.n_layer, config.n_head, config.block_size) == (12, 4, 1024)
    assert (config.out_dir, config.dataset, config.wandb.mode) == ("out", "openwebtext", "disabled")
    assert config.always_save_checkpoint and config.eval_iters == 200
    known = keys(Config)
    assert all(name in known or f"{name}.mode" in known for name in DEFAULTS)
    # of the same names they differ by what its experiment sets beside them
    theirs = compose_one(["config/gpt2_124m.yaml"])
    others = {"out_dir", "eval_interval", "log_interval", "wandb"}
    for name in DEFAULTS.keys() - others:
        assert DEFAULTS[name] == getattr(theirs, name), name


@pytest.mark.parametrize("words", [["init_from=gpt2-xl"], []])
def test_weights_bring_their_shape(composed, words):
    config = composed("" if words else "init_from = 'gpt2-xl'\n", *words)
    assert (config.n_layer, config.n_embd, config.block_size) == (48, 1600, 1024)


def test_a_known_name_means_ours_until_there_is_such_a_file(composed, monkeypatch):
    for name in ("config/train_gpt2.py", "train_gpt2.py"):
        assert compose_one([name]).log_interval == 10
        assert composed("log_interval = 3\n", name=name).log_interval == 3
    assert composed("eval_only = True\n", name="eval_gpt2.py").eval_only


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("block_sise = 8", "mine.py: block_sise: no such key; did you mean block_size?"),
        ("n_layer = 'x'", "mine.py: n_layer=x: must be a whole number"),
        ("n_layer = -2", "mine.py: n_layer=-2: must be at least 1"),
        ("import os", "mine.py: line 1: import os: not of the form key = value; code in"),
        ("n = 1\nexec('x')", r"mine.py: line 2: exec\('x'\): not of the form key = value"),
        ("n_layer += 2", "mine.py: line 1: n_layer .= 2: not of the form"),
        ("a.b = 2", "mine.py: line 1: a.b = 2: not of the form"),
        ("n_layer = open('x')", r"mine.py: n_layer = open\('x'\): not a number, a string, True"),
        ("out_dir = 'a' + 'b'", "mine.py: out_dir = 'a' . 'b': not a number"),
        ("out_dir = f'{max_iters}'", "mine.py: out_dir = f'{max_iters}': not a number"),
        ("n_layer = n_head", "mine.py: n_layer = n_head: not a number"),
        ("n_layer = 9**9**9", "mine.py: n_layer = 9 .* 9 .* 9: not a number"),
        (f"n_layer = {'9' * 25} * {'9' * 25}", "mine.py: n_layer = 9+ . 9+: not a number"),
        ("n_layer = 1 / 0", "mine.py: n_layer = 1 / 0: not a number"),
        ("n_layer = [1]", r"mine.py: n_layer = \[1\]: not a number"),
        (f"n_layer = {'9' * 5000}", "mine.py: n_layer: this number has too many digits"),
        ("n_layer = (", "mine.py: is not Python: line 1: "),
        ("n_layer = 1\0", "mine.py: is not Python: "),
        (f"n_layer = {'1+' * 20_000}1", "mine.py: (is not Python: |n_layer = )"),
    ],
)
def test_all_else_is_a_line(composed, text, said):
    with pytest.raises(ValueError, match=f"^{said}") as error:
        composed(text)
    assert "\n" not in str(error.value)


def test_a_known_experiment_that_cannot_be_read_names_ours(composed):
    with pytest.raises(ValueError, match="ours is config/finetune_shakespeare.yaml$"):
        composed("import time\n", name="config/finetune_shakespeare.py")


def test_nothing_of_a_file_runs(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(f"n_layer = open({str(tmp_path / 'made')!r}, 'w').write('x')\n")
    with pytest.raises(ValueError, match="code in such a file is not run"):
        settings(file)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_a_file_that_is_not_there_and_two_of_them(composed):
    with pytest.raises(ValueError, match="^nowhere.py: no such file"):
        compose_one(["nowhere.py"])
    composed("")
    with pytest.raises(
        ValueError, match="^mine.py and shakespeare_char: give at most one config file"
    ):
        compose_one(["mine.py", "shakespeare_char"])
    assert translate_words(["mine.py"]) == ["mine.py"]
