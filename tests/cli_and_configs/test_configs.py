"""The schema's checks, the YAML files of experiments, and the parser of small programs."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.damage import BOMB
from cli.help import key_table
from cli.keys import keys, parse_keys
from configs import files
from configs.command_line import compose_one, run
from configs.compose import compose_jobs
from configs.schema import Config


@pytest.mark.parametrize("name", files.names())
def test_every_experiment_composes(name):
    (config,) = compose_jobs(files.find(name), [], multirun=False)
    for key, value in files.load(files.find(name)).items():
        assert getattr(config, key) == value


def test_the_main_experiment_is_the_default():
    (main,) = compose_jobs(files.find("shakespeare_char"), [], multirun=False)
    (default,) = compose_jobs(None, [], multirun=False)
    assert main == default == Config()


def test_cpu_experiment_has_nanogpt_s_size():
    (config,) = compose_jobs(files.find("shakespeare_char_cpu"), [], multirun=False)
    size = (config.n_layer, config.n_head, config.n_embd, config.block_size, config.batch_size)
    assert size == (4, 4, 128, 64, 12)
    assert (config.dropout, config.device) == (0.0, "cpu")
    # nanoGPT's 2000 iterations and some: two exact evaluations are to be less than 5 % of them
    assert config.max_iters == config.lr_decay_iters == config.eval_interval == 2500


@pytest.mark.slow
def test_experiments_write_to_different_folders():
    folders = [compose_jobs(files.find(n), [], multirun=False)[0].out_dir for n in files.names()]
    assert len(set(folders)) == len(folders)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"n_embd": 100}, "n_embd=100: not divisible by n_head=6"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"max_iters": -1}, "max_iters=-1: must be at least 0"),
        ({"eval_interval": 0}, "eval_interval=0: must be at least 1"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0"),
        ({"beta2": 1.0}, "beta2=1.0: must be at least 0 and less than 1"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: must be a number from 0 up"),
        ({"weight_decay": float("inf")}, "weight_decay=inf"),
        ({"learning_rate": 1e-5}, "min_lr=0.0001: above learning_rate=1e-05"),
        ({"lr_decay_iters": 100}, "lr_decay_iters=100: must be above warmup_iters=100"),
        ({"device": "gpu"}, "device=gpu: must be auto, cpu, cuda"),
        ({"cuda_graphs": "true", "device": "cpu"}, "cuda_graphs=true: device=cpu"),
        ({"seed": -1}, "seed=-1"),
        ({"out_dir": ""}, "out_dir: must not be empty"),
        ({"attention": "flsh"}, "attention=flsh: no such choice; did you mean flash?"),
    ],
)
def test_impossible_values_are_refused_by_name(values, message):
    with pytest.raises(ValueError) as raised:
        Config(**values)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        {"max_iters": 20},  # shorter than the warm-up left at 100
        {"max_iters": 20, "lr_decay_iters": 20},
        {"max_iters": 0, "eval_only": True},
        {"learning_rate": 1e-5, "decay_lr": False},
        {"max_iters": 9000},  # the tail at min_lr
        {"device": "cuda:1"},
        {"grad_clip": 0.0, "weight_decay": 0.0, "warmup_iters": 0},
    ],
)
def test_sensible_combinations_are_accepted(values):
    config = Config(**values)
    assert all(getattr(config, key) == value for key, value in values.items())


@pytest.mark.parametrize("written, word", [(True, "true"), ("True", "true"), (False, "false")])
def test_a_word_read_as_a_boolean_is_a_word_again(written, word):
    assert Config(cuda_graphs=written).cuda_graphs == word


@pytest.mark.parametrize("project", ["", "a/b", "x" * 129])
def test_wandb_project_follows_wandb_s_rules(project):
    with pytest.raises(ValueError, match=r"^wandb\.project="):
        compose_jobs(None, [f'wandb.project="{project}"'], multirun=False)


def test_every_key_is_explained_in_the_table():
    table = key_table(Config(cuda_graphs="false"))
    for key in keys(Config).values():
        assert f"  {key.name}=" in table
        assert key.help, key.name
    assert "cuda_graphs=false" in table and "compile=true" in table and "wandb.name=null" in table
    assert max(map(len, table.splitlines())) <= 110
    headings = [line for line in table.splitlines() if line.startswith("keys:")]
    assert headings == [
        "keys: model",
        "keys: data",
        "keys: training",
        "keys: profile",
        "keys: gpu_metrics",
        "keys: wandb",
    ]


@dataclass
class SampleConfig:
    start: str = field(default="\n", metadata={"help": "prompt"})
    num_samples: int = field(default=10, metadata={"help": "texts"})
    temperature: float = field(default=0.8, metadata={"help": "of the softmax"})
    quiet: bool = field(default=False, metadata={"help": "no log"})
    device: str = field(default="auto", metadata={"choices": ("auto", "cpu", "cuda")})
    out: str | None = field(default=None, metadata={"help": "file"})


def test_small_programs_take_text_literally():
    prompt = 'What is, this: [x]? a=b "q" ${y} {z} # %'
    config = parse_keys(
        [f"start={prompt}", "--num_samples=3", "temperature=1", "quiet=True", "out=a=b"],
        SampleConfig,
    )
    assert config == SampleConfig(prompt, 3, 1.0, True, "auto", "a=b")
    assert parse_keys([f"--start={prompt}", "start=", "out=null"], SampleConfig).start == ""
    assert parse_keys([], SampleConfig) == SampleConfig()


@pytest.mark.parametrize(
    "argument, message",
    [
        ("num_sample=3", "num_sample: no such key; did you mean num_samples?"),
        ("qqq=3", "qqq: no such key; see python "),
        ("num_samples=three", "num_samples=three: must be a whole number"),
        ("num_samples=1.5", "num_samples=1.5: must be a whole number"),
        ("temperature=hot", "temperature=hot: must be a number"),
        ("quiet=maybe", "quiet=maybe: must be true or false"),
        ("device=cdua", "device=cdua: no such choice; did you mean cuda?"),
        ("start", "start: write key=value"),
    ],
)
def test_small_programs_refuse_by_name(argument, message):
    with pytest.raises(ValueError) as raised:
        parse_keys([argument], SampleConfig)
    assert str(raised.value).startswith(message)


def test_files_are_found_from_any_folder(tmp_path, monkeypatch):
    own = files.FOLDER / "shakespeare_char.yaml"
    monkeypatch.chdir(tmp_path)
    for word in ("shakespeare_char", "shakespeare_char.yaml", "config/shakespeare_char.yaml"):
        assert files.find(word) == own
    assert files.find("configs/shakespeare_char.yaml") == own
    assert files.find(str(own)) == own
    (tmp_path / "mine.yaml").write_text("n_layer: 2\n")
    (tmp_path / "sub").mkdir()
    assert files.find("mine.yaml") == Path("mine.yaml")
    assert files.find("sub/../mine.yaml") is not None
    assert files.find("sub") is None and files.find("mine") is None and files.find("") is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a: &x [*x]", "its aliases"),
        (BOMB.decode(), "stand for more than"),
        ("a: " + "[" * 3000, "nested too deeply"),
    ],
)
def test_a_file_that_stands_for_more_than_it_is_is_refused(tmp_path, content, why):
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"x\.yaml: .*{why}"):
        compose_one([str(path)])


def test_an_alias_of_a_value_is_the_value(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("n_layer: &n 4\nn_head: *n\nn_embd: 16\n")
    assert compose_one([str(path)]).n_head == 4


def test_a_folder_that_hydra_cannot_make_is_told_in_a_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "hydra.run.dir=/dev/null/x"])
    with pytest.raises(SystemExit) as ended:
        run(lambda config: None)
    assert ended.value.code == 2
    assert "hydra.run.dir, hydra.sweep.dir: /dev/null/x: cannot be made" in capsys.readouterr().err
