"""Command line of train.py: files, overrides, sweeps, flags, and one line for each mistake."""

import json
import os
import subprocess
import sys

import pytest

import cli.errors
import configs.compose
from configs import command_line
from configs.command_line import compose_one
from configs.compose import without_sweeper_params
from tests.paths import PROJECT

STUB = """
import dataclasses, json, sys
from configs import command_line

def train(config):
    print(json.dumps(dataclasses.asdict(config) | {"argv": sys.argv[1:]}))

if __name__ == "__main__":
    command_line.run(train)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run("attention=flash") returns the configurations that train() got, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*argv, train=None):
        got = []
        monkeypatch.setattr(sys, "argv", ["train.py", *argv])
        try:
            command_line.run(train or got.append)
        except SystemExit as stopped:  # what was only shown ends before torch is imported
            if stopped.code:
                raise
        return got

    return call


@pytest.fixture
def error_of(run, tmp_path, capsys):
    """error_of("n_layer=x") returns the one line on stderr; exits with 2 and leaves no trace."""

    def call(*argv):
        before = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run(*argv, train=lambda config: pytest.fail(f"trained with {config}"))
        out, err = capsys.readouterr()
        assert stopped.value.code == 2
        assert err.count("\n") == 1 and out == ""
        assert sorted(tmp_path.rglob("*")) == before
        return err.removeprefix("train.py: error: ").rstrip("\n")

    return call


def test_without_arguments_the_defaults_train(run, tmp_path):
    (config,) = run()
    assert type(config) is command_line.Config
    assert (config.n_layer, config.attention, config.wandb.mode) == (6, "auto", "auto")
    assert type(config.wandb.tags) is list
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "argv",
    [
        ["config/shakespeare_char_cpu.yaml", "attention=flash"],
        ["attention=flash", "configs/shakespeare_char_cpu.yaml"],
        ["shakespeare_char_cpu", "--attention=flash"],
        ["shakespeare_char_cpu.yaml", "attention='flash'"],
        ["--config-name", "shakespeare_char_cpu", "attention=flash"],
        ["attention=flash", "--config-name=config/shakespeare_char_cpu.yaml"],
    ],
)
def test_a_file_and_an_override(run, argv):
    (config,) = run(*argv)
    assert (config.attention, config.n_embd, config.device) == ("flash", 128, "cpu")


def test_values_are_of_their_type(run):
    (config,) = run(
        "cuda_graphs=true", "learning_rate=1", "wandb.tags=[a,b]", "--wandb.mode=offline",
        "wandb.name=12", "compile=false", "wandb.group=null", "out_dir=out-${attention}",
    )  # fmt: skip
    assert (config.cuda_graphs, config.compile) == ("true", False)
    assert type(config.learning_rate) is float
    assert config.wandb.tags == ["a", "b"] and config.wandb.mode == "offline"
    assert config.wandb.name == "12" and config.wandb.group is None
    assert config.out_dir == "out-auto"


@pytest.mark.slow
def test_a_file_from_elsewhere_lies_over_the_defaults(run, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "x.yaml").write_text("n_layer: 2\ncuda_graphs: false\nwandb: {mode: offline}\n")
    for word in ("x.yaml", "sub/../x.yaml", str(tmp_path / "x.yaml")):
        (config,) = run(word)
        assert (config.n_layer, config.n_head, config.wandb.mode) == (2, 6, "offline")
        assert config.cuda_graphs == "false"


def test_a_file_may_build_on_one_of_configs(run, tmp_path):
    (tmp_path / "x.yaml").write_text("defaults: [shakespeare_char_cpu]\nn_layer: 2\n")
    (config,) = run("x.yaml")
    assert (config.n_layer, config.n_head, config.device) == (2, 4, "cpu")


@pytest.mark.slow
def test_an_empty_file_is_the_defaults(run, tmp_path):
    (tmp_path / "x.yaml").write_text("# nothing yet\n")
    assert run("x.yaml") == run()


def test_train_sees_the_typed_command_line(run):
    seen = []
    run("shakespeare_char", "--n_layer=2", train=lambda config: seen.append(sys.argv[1:]))
    assert seen == [["shakespeare_char", "--n_layer=2"]]


@pytest.mark.parametrize(
    "argument, message",
    [
        ("n_layers=4", "n_layers: no such key; did you mean n_layer?"),
        ("wandb.mod=offline", "wandb.mod: no such key; did you mean wandb.mode?"),
        ("mode=offline", "mode: no such key; did you mean wandb.mode?"),
        ("wandb=offline", "wandb=offline: wandb is a section; write wandb.mode=VALUE"),
        ("n_layer=abc", "n_layer=abc: must be a whole number"),
        ("n_layer=1.5", "n_layer=1.5: must be a whole number"),
        ("n_layer=null", "n_layer=null: must be a whole number"),
        ("n_layer=", "n_layer=: must be a whole number"),
        ("n_layer=???", "n_layer=???: must be a whole number"),
        ("compile=maybe", "compile=maybe: must be true or false"),
        ("learning_rate=fast", "learning_rate=fast: must be a number"),
        ("wandb.tags=a", "wandb.tags=a: must be a list"),
        ("attention=flsh", "attention=flsh: no such choice; did you mean flash? (slow, "),
        (
            "speed=fats",
            "speed=fats: no such choice; did you mean fast? (reference, compiled, fast)",
        ),
        ("n_embd=100", "n_embd=100: not divisible by n_head=6"),
        ("+new=1", "new: no such key"),
        ("++new=1", "new: no such key"),
        ("+n_layer=1", "+n_layer=1: keys cannot be added or deleted; write n_layer=VALUE"),
        ("~n_layer", "~n_layer: keys cannot be added or deleted; write n_layer=VALUE"),
        ("n_layer=[", "n_layer=[: not understood"),
        ("=3", "=3: no key before the '='"),
        ("attention=slow,flash", "attention=slow,flash: several values; add -m"),
        ("seed=range(3)", "seed=range(3): several values; add -m"),
        ("out_dir=${nope}", "out_dir: Interpolation key 'nope' not found"),
        ("n_layer=${attention}", "n_layer: While dereferencing"),
        ("attention", "attention: this key has no value; write attention=VALUE"),
        (
            "hello",
            "hello: neither key=value nor a config file (configs/ has finetune_shakespeare, ",
        ),
        ("config/shakespeare_chr.yaml", "config/shakespeare_chr.yaml: no such file; did you mean"),
        (".", ".: a folder, not a YAML file"),
        ("--attention", "--attention: no such flag; as a key, write attention=VALUE"),
        ("--multi", "--multi: no such flag; did you mean --multirun?"),
        ("-x", "-x: no such flag; see python "),
        ("--cfg=nope", "argument --cfg/-c: invalid choice: 'nope'"),
        ("--config-path=/", "--config-path: this flag of Hydra is not supported"),
        ("--experimental-rerun=x", "--experimental-rerun: this flag of Hydra is not supported"),
        ("hydra.nope=1", "hydra.nope: has no effect here"),
        ("+hydra.x=1", "hydra.x: has no effect here"),
        (
            "hydra.run.dir=x",
            "hydra.run.dir: has no effect here; set the folder of a run with out_dir=FOLDER",
        ),
        (
            "hydra.job.chdir=true",
            "hydra.job.chdir: has no effect here; set the folder of a run with out_dir=FOLDER",
        ),
        (
            "hydra.sweeper.params.seed=1,2",
            "hydra.sweeper.params.seed=1,2: has no effect without -m",
        ),
        ("go_on=3", "go_on=3: must be true or false"),
        ("decay_lr=2", "decay_lr=2: must be true or false"),
        ("exact_resume=0.5", "exact_resume=0.5: must be true or false"),
        ("--package=x", "--package x: only works together with --cfg"),
    ],
)
def test_a_mistake_is_one_line(error_of, argument, message):
    assert error_of(argument).startswith(message)


def test_hydras_own_spelling_of_a_sweep_is_the_sweep_and_a_key_itself_counts_more():
    assert without_sweeper_params(["hydra.sweeper.params.seed=1,2"], multirun=True) == ["seed=1,2"]
    words = ["+hydra.sweeper.params.seed=1,2", "hydra.sweeper.params.dropout=0,0.1", "seed=3"]
    assert without_sweeper_params(words, multirun=True) == ["dropout=0,0.1", "seed=3"]


def test_a_package_that_the_configuration_lacks_is_refused(error_of):
    assert error_of("--cfg", "job", "-p", "nope").startswith("--package nope: not in the config")


def test_a_setting_of_hydras_in_a_file_is_refused_where_it_has_no_effect(tmp_path, error_of):
    path = tmp_path / "x.yaml"
    path.write_text("hydra: {run: {dir: x}}")
    assert error_of(str(path)).startswith(f"{path}: hydra.run.dir: has no effect here")


@pytest.mark.parametrize("setting", ["n_layer", "learning_rate", "keep_previous", "profile.steps"])
def test_a_number_of_thousands_of_digits_is_told_by_its_key(error_of, tmp_path, setting):
    """Python makes no number of it, and its own message names no key."""
    digits = "9" * 5000
    said = error_of(f"{setting}={digits}")
    assert said.startswith(f"{setting}=99999999999999999999... (5,000 digits): ")
    section, _, name = setting.rpartition(".")
    written = f"{section}: {{{name}: {digits}}}" if section else f"{name}: [{digits}]"
    (tmp_path / "mine.yaml").write_text(written)
    said = error_of(str(tmp_path / "mine.yaml"))
    assert f"mine.yaml: {setting}: this number has too many digits" in said


def test_a_second_file_is_refused(error_of):
    assert "at most one config file" in error_of("shakespeare_char", "shakespeare_bpe")
    assert "at most one config file" in error_of("-cn", "shakespeare_char", "shakespeare_bpe")


@pytest.mark.parametrize(
    "text, message",
    [
        ("n_layers: 4\n", ": n_layers: no such key; did you mean n_layer?"),
        ("wandb: {mod: x}\n", ": wandb.mod: no such key; did you mean wandb.mode?"),
        ("wandb.mode: offline\n", ": wandb.mode: in a file, write this key under its section"),
        ("n_layer: two\n", ": n_layer=two: must be a whole number"),
        ("n_layer: 0\n", ": n_layer=0: must be at least 1"),
        ("attention: flsh\n", ": attention=flsh: no such choice; did you mean flash?"),
        ("a: 1\nb: [1,\nc: : 2\n", ":3:4: broken YAML: "),
        ("seed: &x [*x]\n", ": its YAML aliases (*NAME) are circular"),
        ("min_lr: ${learning_rte}\n", ": min_lr: Interpolation key 'learning_rte' not found; did"),
        ("n_layer: 1\nn_layer: 2\n", ":2:1: broken YAML: found duplicate key n_layer"),
        ("n_layer:\n\t2\n", ":2:1: broken YAML: found character"),
        ("n_layer: !!python/name:os.system\n", ":1:10: broken YAML: could not determine"),
        ("- n_layer\n", ": not a mapping"),
        ("hello\n", ": not a mapping"),
        ("\xff\xfe", ": cannot be read: "),
        ("out_dir: ${\n", ": cannot be read: "),
        ("defaults: shakespeare_char\n", ": defaults: must be a list"),
        ("defaults: [nope]\n", ": Could not load 'nope'."),
    ],
)
def test_a_mistake_in_a_file_names_the_file(error_of, tmp_path, text, message):
    (tmp_path / "x.yaml").write_bytes(text.encode("latin-1"))
    assert error_of("x.yaml").removeprefix("In ").startswith(f"x.yaml{message}")


def test_a_sweep_trains_once_with_each_in_its_own_folder(run, capsys):
    jobs = run("max_iters=20", "out_dir=o", "-m", "attention=slow,flash", "seed=1,2")
    assert [(job.attention, job.seed, job.max_iters) for job in jobs] == [
        ("slow", 1, 20), ("slow", 2, 20), ("flash", 1, 20), ("flash", 2, 20),
    ]  # fmt: skip
    assert jobs[0].out_dir == "o/attention=slow,seed=1"
    assert len({job.out_dir for job in jobs}) == 4
    assert {job.wandb.group for job in jobs} == {"o"}  # one comparison in W&B
    assert "job 4 of 4: o/attention=flash,seed=2" in capsys.readouterr().out


def test_a_sweep_keeps_a_group_of_ones_own(run):
    jobs = run("-m", "wandb.group=mine", "attention=slow,flash")
    assert {job.wandb.group for job in jobs} == {"mine"}
    names = [job.wandb.name for job in jobs]
    assert names == ["shakespeare_char-attention=slow", "shakespeare_char-attention=flash"]
    jobs = run("-m", "wandb.name=mine", "seed=1,2")
    assert [job.wandb.name for job in jobs] == ["mine-seed=1", "mine-seed=2"]


def test_a_sweep_over_folders_uses_them_as_they_are(run):
    assert [job.out_dir for job in run("-m", "out_dir=a,b")] == ["a", "b"]


def test_a_sweep_of_a_file(run):
    jobs = run("-m", "shakespeare_char_cpu", "cuda_graphs=auto,false")
    assert [(job.n_layer, job.cuda_graphs) for job in jobs] == [(4, "auto"), (4, "false")]


@pytest.mark.slow
def test_hydra_composes_a_sweep_once(run, tmp_path, monkeypatch):
    """Hydra composes once more for each group's file, not for each value of a key."""
    composed = []
    compose = configs.compose.compose
    monkeypatch.setattr(configs.compose, "composed", {})
    monkeypatch.setattr(
        configs.compose, "compose", lambda *a, **k: composed.append(a[1]) or compose(*a, **k)
    )
    monkeypatch.setattr(command_line.hydra, "main", lambda **_: pytest.fail("composes once more"))
    jobs = run("-m", "attention=slow,flash", "seed=range(1,9)", "profile=torch,none")
    assert len(jobs) == 32 and len({job.out_dir for job in jobs}) == 32
    assert composed == [["profile=torch"], ["profile=none"]]
    configs.compose.compose_jobs(None, ["seed=3", "profile=none"], multirun=False)
    assert len(composed) == 2, "nor again for another process"
    own = ["profile=none", f"hydra.searchpath=[file://{tmp_path}]"]
    for count in (3, 4):  # whose files may have changed
        configs.compose.compose_jobs(None, own, multirun=False)
        assert len(composed) == count


SWEEP = ("-m", "out_dir=o-${attention}", "attention=slow,flash", "profile=torch", "n_head=2")


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["hydra.verbose=false", "hydra/launcher=basic"])
def test_hydra_s_launcher_gets_the_same_jobs(run, capsys, setting):
    jobs = run(*SWEEP)
    told = capsys.readouterr().out
    seen = []
    assert run(*SWEEP, setting, train=lambda config: seen.append((config, sys.argv[-1]))) == []
    assert seen == [(job, setting) for job in jobs]
    assert capsys.readouterr().out == told and told.count("job ") == 2


def test_a_launcher_that_is_not_installed_says_how_to_get_it(error_of):
    told = error_of("-m", "hydra/launcher=submitit_none", "seed=1,2")
    assert told.endswith("; install those of submitit with pip install '.[slurm]'")


def test_jobs_of_submitit_say_what_runs_and_where_their_lines_are(run, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "SUBMITIT", "hydra/launcher=basic")
    run("-m", "seed=1,2", "out_dir=o", "hydra/launcher=basic", train=lambda config: None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["job 1 of 2 (o/seed=1)", "job 2 of 2 (o/seed=2)"]
    assert lines[2].startswith("basic: the output of the jobs is in .submitit/")


@pytest.mark.slow
def test_settings_of_hydra_are_in_force(run, tmp_path, monkeypatch):
    monkeypatch.delenv("PLANTED", raising=False)
    (tmp_path / "x.yaml").write_text(
        "hydra: {sweep: {subdir: 's-${attention}'}, job: {env_set: {PLANTED: '5'}}}"
    )
    seen = []
    run("-m", "x.yaml", "attention=slow,flash",
        train=lambda config: seen.append((config.out_dir, os.environ["PLANTED"])))  # fmt: skip
    assert seen == [(f"out-shakespeare-char/s-{name}", "5") for name in ("slow", "flash")]


def test_ranks_but_the_first_do_not_announce_jobs(run, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    assert len(run("-m", "seed=1,2")) == 2
    assert capsys.readouterr().out == ""


def test_one_configuration_for_a_verb():
    config = compose_one(["shakespeare_char_cpu", "--compile=false"], "compile=true", "seed=3")
    assert (config.n_layer, config.compile, config.seed) == (4, False, 3)
    for words in (["-m", "seed=1,2"], ["--cfg", "job"]):
        with pytest.raises(
            ValueError, match=f"^{words[0]}: this flag of train.py does not work here"
        ):
            compose_one(words)


@pytest.mark.parametrize(
    "argument, message",
    [
        (
            "seed=glob(*)",
            "seed=glob(*): patterns are not supported; name the values: seed=VALUE,VALUE",
        ),
        (
            "profile=glob(*)",
            "profile=glob(*): patterns are not supported; name the values: profile=memory,",
        ),
        ("attention=slow,flsh", "attention=flsh: no such choice; did you mean flash?"),
        ("n_layer=2,x", "n_layer=x: must be a whole number"),
        ("n_head=6,5", "n_embd=384: not divisible by n_head=5"),
        ("n_layers=1,2", "n_layers: no such key"),
        ("seed=1,1", "out_dir: jobs 1 and 2 would both write to out-shakespeare-char/seed=1"),
        ("dropout=interval(0,1)", "dropout=interval(0,1): an interval"),
    ],
)
def test_a_sweep_is_checked_before_its_first_job(error_of, argument, message):
    assert error_of("-m", argument).startswith(message)


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """sweep(train, check): three jobs of seeds 1 to 3; (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(train, check=command_line.no_check, *more):
        monkeypatch.setattr(sys, "argv", ["train.py", "-m", "seed=1,2,3", "out_dir=o", *more])
        code = 0
        try:
            command_line.run(train, check)
        except SystemExit as stopped:
            code = stopped.code
        return code, *capsys.readouterr()

    return call


def test_what_a_machine_refuses_is_known_before_the_first_job(sweep):
    def check(config):
        checked.append(config.seed)
        if config.seed == 2:
            raise ValueError("device=cuda: none here")

    checked = []
    code, out, err = sweep(lambda config: pytest.fail("it trained"), check)
    assert (code, out, checked) == (2, "", [1, 2])
    assert err == "train.py: error: job 2 of 3 (o/seed=2): device=cuda: none here\n"


@pytest.mark.slow
@pytest.mark.parametrize("setting", [(), ("hydra.verbose=false",)])
def test_a_job_that_fails_costs_itself(sweep, setting):
    def train(config):
        trained.append(config.seed)
        if config.seed == 1:
            raise ValueError("data_source=x:\n  too short")
        if config.seed == 2:
            raise SystemExit("train.py: training loss is nan")

    trained = []
    code, out, err = sweep(train, command_line.no_check, *setting)
    assert (code, trained) == (1, [1, 2, 3])
    assert err.splitlines() == [
        "train.py: 2 of 3 jobs failed:",
        "  job 1 of 3 (o/seed=1): data_source=x: too short",
        "  job 2 of 3 (o/seed=2): training loss is nan",
    ]
    assert [line.split(":")[0] for line in out.splitlines()] == [
        *("job 1 of 3", "job 1 of 3 (o/seed=1)", "job 2 of 3", "job 2 of 3 (o/seed=2)"),
        "job 3 of 3",
    ]


def test_a_bug_in_a_job_shows_its_traceback_and_the_others_run(sweep):
    trained = []

    def train(config):
        trained.append(config.seed)
        if config.seed == 1:
            raise KeyError("lost")

    code, _, err = sweep(train)
    assert (code, trained) == (1, [1, 2, 3])
    assert "Traceback" in err and err.endswith("  job 1 of 3 (o/seed=1): 'lost'\n")


@pytest.mark.parametrize("stop, code", [(KeyboardInterrupt(), 130), (SystemExit(130), 130)])
def test_ctrl_c_ends_a_sweep(sweep, stop, code):
    trained = []

    def train(config):
        trained.append(config.seed)
        raise stop

    assert sweep(train)[0] == code and trained == [1]


def test_under_torchrun_a_failed_job_ends_the_sweep(sweep, monkeypatch):
    """Ranks that fail apart would wait for each other in the next job."""
    monkeypatch.setenv("RANK", "0")
    trained = []

    def train(config):
        trained.append(config.seed)
        raise ValueError("no")

    assert sweep(train)[0] == 2 and trained == [1]


def test_other_ranks_let_the_first_tell_a_mistake(error_of, monkeypatch):
    waited = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("time.sleep", waited.append)
    assert error_of("n_layers=4").startswith("n_layers: no such key")
    assert waited == [cli.errors.OTHER_RANKS_WAIT_S]


def test_a_value_error_of_the_trainer_is_one_line(run, capsys):
    def train(config):
        raise ValueError("data_source=x:\n  no such file")

    with pytest.raises(SystemExit) as stopped:
        run(train=train)
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "train.py: error: data_source=x: no such file\n"


def test_bugs_and_exits_of_the_trainer_pass_through(run):
    def bug(config):
        return {}["key"]

    with pytest.raises(KeyError):
        run(train=bug)
    with pytest.raises(SystemExit) as stopped:
        run(train=lambda config: sys.exit(7))
    assert stopped.value.code == 7


def test_cfg_job_shows_the_keys_alone(run, capsys):
    assert run("--cfg", "job", "shakespeare_char_cpu", "n_layer=2") == []
    out, err = capsys.readouterr()
    assert out.startswith("n_layer: 2\nn_head: 4\n") and "out_dir: out-shakespeare-char-cpu" in out
    assert "hydra" not in out and err == ""


def test_what_comes_with_gpt2_s_weights_is_shown(run, capsys):
    assert run("gpt2_medium", "init_from=gpt2-medium", "block_size=512", "--cfg", "job") == []
    shown = capsys.readouterr().out
    assert "n_layer: 24" in shown and "n_head: 16" in shown and "block_size: 512" in shown
    assert run("finetune_shakespeare", "--cfg", "job") == []
    assert "n_layer: 48" in capsys.readouterr().out


@pytest.mark.slow
def test_hydra_s_launcher_gets_the_model_s_keys_too(run, tmp_path):
    argv = ["finetune_shakespeare", "init_from=gpt2,gpt2_medium", f"hydra.sweep.dir={tmp_path}"]
    assert [(job.n_layer, job.block_size) for job in run("-m", *argv)] == [(12, 1024), (24, 1024)]


def test_help_shows_the_values_of_the_file(run, capsys):
    assert run("shakespeare_char_cpu", "--help", "n_layers=9") == []
    out = capsys.readouterr().out
    assert "python train.py config/shakespeare_char.yaml attention=flash" in out
    assert "  n_layer=4 " in out and "  wandb.mode=auto " in out and "--multirun" in out
    assert max(map(len, out.splitlines())) <= 110


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv, expected",
    [
        (["--hydra-help", "n_layer=2"], "== Flags =="),
        (["--info", "defaults-tree"], "_primary:"),
        (["-sc", "install=bash"], "hydra_bash_completion"),
    ],
)
def test_hydra_s_own_flags_work(run, capsys, argv, expected):
    assert run(*argv) == []
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, expected",
    [
        ("config/shakespeare_char_cpu.yaml n_la", ["n_layer="]),
        ("config/shakespeare_char_cpu.yaml n_layer=", ["n_layer=4"]),
        ("--n_layer=2 wandb.pro", ["wandb.project="]),
        ("missing.yaml log_", ["log_interval="]),
        ("broken.yaml log_", []),
        ("attention=fl", ["attention=flash", "attention=flex"]),
        ("--attention=fla", ["--attention=flash"]),
        ("compile=", ["compile=false", "compile=true"]),
        ("speed=", ["speed=compiled", "speed=fast", "speed=reference"]),
        ("spe", ["speed="]),
        ("profile=m", ["profile=memory"]),
        ("config/shakespeare_b", ["config/shakespeare_bpe.yaml"]),
        ("shakespeare_b", ["shakespeare_bpe"]),
        ("min", ["min_lr=", "mine.yaml"]),
        ("data_source=min", ["data_source=mine.yaml"]),
        ("weights=min", ["weights=mine.yaml"]),
        ("--batch", ["--batch_size="]),
        ("--mult", ["--multirun"]),
        ("--nothing", []),
        ("nothing=", []),
    ],
)
def test_tab_completion(run, tmp_path, monkeypatch, capsys, line, expected):
    (tmp_path / "mine.yaml").write_text("n_layer: 3\n")
    (tmp_path / "broken.yaml").write_text("n_layer: [\n")
    monkeypatch.setenv("COMP_LINE", f"python train.py {line}")
    run("-sc", "query=bash")
    out, err = capsys.readouterr()
    assert (out.split(), err) == (expected, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["Übung.txt", "novel (1).txt", "a=b.txt", "本.txt", "a,b.txt", "it's.txt", "a\\", "1e3", "{a}"],
)
def test_a_text_is_taken_as_it_stands(run, text):
    (config,) = run(f"data_source={text}", f"--wandb.name={text}")
    assert (config.data_source, config.wandb.name) == (text, text)


def test_quotes_null_and_interpolations_are_hydra_s(run):
    (config,) = run("data_source='a,b.txt'", "wandb.name=null", "out_dir=out-${seed}", "seed=3")
    assert (config.data_source, config.wandb.name, config.out_dir) == ("a,b.txt", None, "out-3")


def test_in_a_sweep_commas_separate_texts(run):
    jobs = run("-m", "data_source=Übung.txt,novel (1).txt,b.txt")
    assert [job.data_source for job in jobs] == ["Übung.txt", "novel (1).txt", "b.txt"]
    assert jobs[2].out_dir.endswith("/data_source=b.txt")
    jobs = run("-m", "data_source='a,b.txt',c.txt", "seed=1")
    assert [job.data_source for job in jobs] == ["a,b.txt", "c.txt"]


def test_home_is_expanded(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "mine.yaml").write_text("out_dir: ~/runs\n")
    (config,) = run("mine.yaml")
    assert config.out_dir == "/home/me/runs"
    (config,) = run("out_dir=~/x")
    assert config.out_dir == "/home/me/x"


@pytest.mark.parametrize(
    "word, key, value",
    [
        ("wandb_log=False", "mode", "disabled"),
        ("wandb_log=True", "mode", "auto"),
        ("wandb_project=mine", "project", "mine"),
        ("wandb_run_name=mini gpt", "name", "mini gpt"),
        ("backend=nccl", "name", None),
    ],
)
def test_nanogpt_s_keys_become_ours(run, capsys, word, key, value):
    (config,) = run(f"--{word}", "--compile=False", "--eval_iters=20")
    assert getattr(config.wandb, key) == value
    assert capsys.readouterr().err.count("\n") == 1
    assert not config.compile and config.eval_iters == 20


def test_nanogpt_s_main_experiment_is_ours(run, capsys):
    (config,) = run("config/train_shakespeare_char.py", "max_iters=3000")
    (ours,) = run("shakespeare_char", "max_iters=3000")
    assert config == ours
    said = "nanoGPT's names: config/train_shakespeare_char.py is config/shakespeare_char.yaml\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "theirs, ours",
    [("finetune_shakespeare", "finetune_shakespeare"), ("train_gpt2", "gpt2_124m")],
)
def test_nanogpt_s_other_experiments_are_ours(run, theirs, ours):
    assert run(f"config/{theirs}.py") == run(ours)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["out_dir=${oc.env:NOPE_}"], "out_dir: the environment variable NOPE_ is not "
         "set; set it, or write ${oc.env:NOPE_,VALUE}"),
        (["out_dir=${nope:1}"], "out_dir: Unsupported interpolation type nope; write ${KEY} or "
         "${oc.env:VARIABLE}"),
        (["hydra.job.env_set.X=1"], "hydra.job.env_set.X: Key 'X' is not in struct; to add it, "
         "write +hydra.job.env_set.X=VALUE"),
        (["hydra.launcher.x=1"], "hydra.launcher.x: Key 'x' not in 'BasicLauncherConf'; --cfg "
         "hydra shows what there is"),
        (["hydra.launcher=basic"], "hydra.launcher=basic: this is a section; write hydra/launcher="
         "NAME"),
        (["hydra/launcher=x"], "hydra/launcher=x: no such option; the options are basic"),
        (["hydra.searchpath=[x]"], "hydra.searchpath=[x]: x: no such folder"),
        (["-sc"], "-sc: write -sc install=bash; uninstall, fish and zsh work the same way"),
        (["-sc", "install=x"], "-sc: write -sc install=bash; uninstall, fish and zsh work the same "
         "way"),
    ],
)  # fmt: skip
def test_what_hydra_says_has_a_cure(error_of, monkeypatch, words, said):
    monkeypatch.delenv("NOPE_", raising=False)
    assert error_of(*words) == said


def test_a_searchpath_of_a_file_is_looked_at_too(error_of, tmp_path):
    (tmp_path / "mine.yaml").write_text("hydra:\n  searchpath: [x, pkg://hydra]\n")
    assert error_of("mine.yaml").startswith("mine.yaml: hydra.searchpath=[x,pkg://hydra]: x: no")


@pytest.mark.slow
def test_keys_of_sweeps_are_said_where_there_is_none(run, capsys):
    run("hydra.sweep.dir=x")
    assert capsys.readouterr().err == "warning: hydra.sweep.dir: has no effect without -m\n"
    run("-m", "hydra.sweep.dir=x", "seed=1,2")
    assert "no effect" not in capsys.readouterr().err


def test_a_file_of_nanogpt_s_says_what_it_lies_over(run, tmp_path, capsys):
    (tmp_path / "mine.py").write_text("wandb_log = False\nn_head = 4\n")
    (config,) = run("mine.py", "--n_layer=3")
    assert (config.n_layer, config.n_head, config.n_embd) == (3, 4, 768)
    assert capsys.readouterr().err == (
        "mine.py: keys that this file does not set are as in nanoGPT's train.py: GPT-2 124M on "
        "openwebtext\n"
    )


def test_a_mistake_in_a_file_of_nanogpt_s_is_one_line(error_of, tmp_path):
    (tmp_path / "mine.py").write_text("n_heads = 4\n")
    assert error_of("mine.py") == "mine.py: n_heads: no such key; did you mean n_head?"


def test_an_evaluation_of_gpt2_names_its_command(error_of):
    words = "config/gpt2_xl.yaml init_from=gpt2_xl eval_only=true"
    assert error_of("config/eval_gpt2_xl.py").endswith(f"here python train.py {words}")


@pytest.mark.slow
def test_as_a_program(tmp_path):
    (tmp_path / "train.py").write_text(STUB)
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}

    def call(*argv):
        return subprocess.run(
            [sys.executable, "train.py", *argv],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    trained = call("config/shakespeare_char.yaml", "attention=flash")
    assert trained.returncode == 0 and trained.stderr == ""
    config = json.loads(trained.stdout)
    assert config["attention"] == "flash" and config["block_size"] == 256
    assert config["argv"] == ["config/shakespeare_char.yaml", "attention=flash"]

    for argument, message in (
        ("n_layers=4", "n_layers: no such key; did you mean n_layer?"),
        ("qqq=4", "qqq: no such key; see python train.py --help"),
        ("-x", "-x: no such flag; see python train.py --help"),
        ("--cfg=x", "argument --cfg/-c: invalid choice: 'x' (choose from 'job', 'hydra', 'all'); "
         "see python train.py --help"),
    ):  # fmt: skip
        refused = call(argument)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == f"train.py: error: {message}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
