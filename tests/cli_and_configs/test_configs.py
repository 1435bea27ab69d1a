"""Checks of the schema, YAML files of experiments, and the parser of small programs."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.help import key_table
from cli.keys import keys, parse_keys
from configs import files
from configs.command_line import compose_one, run
from configs.compose import compose_jobs
from configs.model import GPT2_SIZES
from configs.schema import Config
from tests.soak.damage import BOMB


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


def test_gpt2_is_trained_as_nanogpt_trains_it():
    (config,) = compose_jobs(files.find("gpt2_124m"), [], multirun=False)
    assert (config.n_layer, config.n_head, config.n_embd, config.block_size) == (12, 12, 768, 1024)
    assert config.batch_size * config.block_size * config.gradient_accumulation_steps == 491_520
    assert config.max_iters == config.lr_decay_iters == 600_000 and config.warmup_iters == 2000
    rates = (config.learning_rate, config.min_lr, config.weight_decay, config.beta2)
    assert rates == (6e-4, 6e-5, 0.1, 0.95)
    assert (config.bias, config.activation, config.dropout) == (False, "gelu", 0.0)


@pytest.mark.parametrize(
    "size, millions", list(zip(GPT2_SIZES, (124.44, 354.82, 774.03, 1557.61), strict=True))
)
def test_gpt2_s_sizes_have_their_parameters(size, millions):
    (config,) = compose_jobs(files.find(size), [], multirun=False)
    L, C, T, V = config.n_layer, config.n_embd, config.block_size, 50_257
    blocks = L * (12 * C * C + 13 * C)  # matrices; biases of 9 C, two norms of 2 C each
    assert (blocks + (V + T) * C + 2 * C) / 1e6 == pytest.approx(millions, abs=0.005)
    assert config.n_embd // config.n_head == 64 and config.bias
    assert config.activation == "gelu_tanh"


def shape(*words: str, file: str = "finetune_shakespeare", multirun: bool = False) -> list[tuple]:
    jobs = compose_jobs(files.find(file), list(words), multirun)
    return [(c.init_from, c.n_layer, c.n_head, c.n_embd, c.block_size) for c in jobs]


def test_the_model_s_keys_come_with_gpt2_s_weights():
    assert shape() == [("gpt2_xl", 48, 25, 1600, 1024)]
    assert shape("init_from=gpt2-medium") == [("gpt2_medium", 24, 16, 1024, 1024)]
    assert shape("init_from=gpt2", "block_size=256") == [("gpt2", 12, 12, 768, 256)]
    assert shape("init_from=gpt2", "n_layer=12") == [("gpt2", 12, 12, 768, 1024)]
    assert shape("init_from=gpt2", file="gpt2") == [("gpt2", 12, 12, 768, 1024)]
    sizes = shape("init_from=gpt2,gpt2_large", multirun=True)
    assert sizes == [("gpt2", 12, 12, 768, 1024), ("gpt2_large", 36, 20, 1280, 1024)]
    (config,) = compose_jobs(files.find("finetune_shakespeare"), [], multirun=False)
    assert config.bias and config.activation == "gelu_tanh" and config.dropout == 0
    # the config.yaml of such a run, which is to begin from scratch this time
    (fresh,) = compose_jobs(None, ["weights=x", "init_from=scratch"], multirun=False)
    assert fresh.init_from == "scratch"


@pytest.mark.parametrize(
    "words, file, message",
    [
        (
            ["init_from=gpt2", "n_layer=6"],
            "finetune_shakespeare",
            "n_layer=6: init_from=gpt2 has 12",
        ),
        (["init_from=gpt2"], "shakespeare_char", "n_layer=6: init_from=gpt2 has 12; leave n_layer"),
        (["init_from=gpt2"], "gpt2_124m", "bias=false: init_from=gpt2 has true; leave bias out"),
        (
            ["block_size=2048"],
            "finetune_shakespeare",
            "block_size=2048: .* has 1024; leave .* smaller",
        ),
        (
            ["activation=gelu"],
            "finetune_shakespeare",
            "activation=gelu: init_from=gpt2_xl has gelu_",
        ),
        (
            ["recipe=fast"],
            "finetune_shakespeare",
            "positions=rotary: init_from=gpt2_xl has learned",
        ),
        (["init_from=gpt3"], "gpt2", "init_from=gpt3: no such choice; did you mean gpt2"),
        (["init_from=weights"], "gpt2", "init_from=weights: name the weights with weights=PATH"),
        (["weights=x"], "gpt2", "weights=x: not read with init_from=scratch; add init_from=gpt2"),
    ],
)
def test_what_contradicts_gpt2_s_weights_is_one_line(words, file, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        shape(*words, file=file)


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
        ({"bucket_mb": 1e300}, "bucket_mb=1e+300: must be at least 1 and less than 1000000"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: must be a number of at least 0"),
        ({"weight_decay": float("inf")}, "weight_decay=inf"),
        ({"learning_rate": 1e-5}, "min_lr=0.0001: is above learning_rate=1e-05"),
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
    assert "cuda_graphs=false" in table and "compile=null" in table and "wandb.name=null" in table
    assert max(map(len, table.splitlines())) <= 110
    headings = [line for line in table.splitlines() if line.startswith("keys:")]
    assert headings == [
        "keys: model",
        "keys: data",
        "keys: training",
        "keys: profile",
        "keys: gpu_metrics",
        "keys: wandb",
        "keys: tuning",
    ]
    tuning = table.split("keys: tuning")[1].splitlines()
    rare = {line.partition("=")[0].strip() for line in tuning if not line.startswith("    ")}
    assert {"kernels", "residual_dtype", "reduce_dtype", "shard_update", "all_reduce"} < rare
    assert {"bucket_mb", "shard_ranks", "compile_scope"} < rare and "speed" not in rare


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a: &x [*x]", "its YAML aliases"),
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
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "seed=1,2", "hydra.sweep.dir=/dev/null/x"])
    with pytest.raises(SystemExit) as ended:
        run(lambda config: None)
    assert ended.value.code == 2
    assert (
        "hydra.run.dir, hydra.sweep.dir: /dev/null/x: cannot be created"
    ) in capsys.readouterr().err
