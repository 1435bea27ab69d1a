"""kernels=auto and compile=null: the choice on GPUs that are not here, and its reasons."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from configs.command_line import compose_one
from configs.jobs import Jobs
from configs.optimizers import OPTIMIZERS
from configs.schema import Config
from profiling.launch.experiment.plan import plan_experiment
from training.machine import kernel_choice
from training.machine.device import reasons, resolve
from training.metrics.record import kernels_line

GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch):
    """gpu(capability=..., triton=...): a machine with such a GPU, as far as is asked."""

    def machine(capability=(9, 0), triton: str | None = "3.7.1") -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A100")
        monkeypatch.setattr(kernel_choice, "triton_version", lambda: triton)

    machine()
    return machine


def settled(*words: str) -> tuple[str, bool | None, str]:
    config = resolve(compose_one(list(words)), GPU)
    return config.kernels, config.compile, config.cuda_graphs


@pytest.mark.parametrize("triton", ["3.6.0", "3.7.1", "3.9.0"])
@pytest.mark.parametrize("attention", ["flash", "auto", "cudnn", "efficient", "triton"])
def test_our_own_kernels_run_where_they_are_proved_and_leave_nothing_to_compile(
    gpu, attention, triton
):
    gpu(triton=triton)
    assert settled(f"attention={attention}") == ("fused", False, "true")
    told = reasons(compose_one([f"attention={attention}"]), GPU)
    assert told["kernels"] == f"proved on this GPU in bfloat16 with Triton {triton}"
    assert told["compile"] == "kernels=fused leaves nothing to compile"


@pytest.mark.parametrize(
    "word", ["attention=slow", "attention=math", "attention=flex dropout=0", "activation=gelu_tanh"]
)
def test_what_they_leave_unfused_is_compiled(gpu, word):
    assert settled(*word.split()) == ("fused", True, "true")
    told = reasons(compose_one(word.split()), GPU)
    assert told["compile"] == f"kernels=fused leaves {word.split()[0]} to it"


@pytest.mark.parametrize(
    "machine, words, reason",
    [
        (dict(capability=(8, 0)), "", "our own kernels were not tested on A100"),
        (dict(triton="3.8.0"), "", "our own kernels were not tested with Triton 3.8.0"),
        (dict(triton=None), "", "our own kernels were not tested with no Triton"),
        (dict(), "dtype=float16", "this run uses float16"),
        (dict(), "dtype=float32 attention=efficient", "this run uses float32"),
        (dict(), "n_embd=2048 n_head=16", "not tested with n_embd=2048, above 1600"),
        (dict(), "activation_checkpointing=full", "not work with activation_checkpointing=full"),
        (dict(), "cuda_graphs=false", "do not work with cuda_graphs=false"),
    ],
)
def test_elsewhere_it_is_the_compiler_and_the_reason_names_the_way_out(gpu, machine, words, reason):
    gpu(**machine)
    kernels, compiled, _ = settled(*words.split())
    assert (kernels, compiled) == ("compiled", True)
    told = reasons(compose_one(words.split()), GPU)["kernels"]
    assert reason in told and told.endswith("; try this project's own kernels with kernels=fused")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kernels", ["fused", "compiled"])
def test_what_is_typed_is_kept(gpu, kernels, compiled):
    words = [f"kernels={kernels}", f"compile={str(compiled).lower()}", "attention=flash"]
    assert settled(*words)[:2] == (kernels, compiled)
    assert not {"kernels", "compile"} & set(reasons(compose_one(words), GPU))


@pytest.mark.parametrize(
    "words, came_to",
    [
        ("speed=fast", ("fused", False, "true")),
        ("speed=compiled", ("compiled", True, "true")),
        ("speed=reference", ("compiled", False, "false")),
        ("speed=reference kernels=fused", ("fused", False, "true")),
        ("speed=reference compile=true", ("compiled", True, "true")),
        ("speed=compiled compile=false", ("compiled", False, "false")),
        ("speed=compiled cuda_graphs=false", ("compiled", True, "false")),
        ("speed=reference attention=slow", ("compiled", False, "false")),
        ("recipe=fast speed=compiled", ("compiled", True, "true")),
        ("recipe=fast speed=compiled kernels=fused", ("fused", True, "true")),
    ],
)
def test_a_level_decides_what_is_not_typed(gpu, words, came_to):
    assert settled(*words.split()) == came_to
    typed = {word.partition("=")[0] for word in words.split()}
    given = reasons(compose_one(words.split()), GPU)
    (level,) = (word for word in words.split() if word.startswith("speed="))
    for key in {"kernels", "compile"} - typed:
        assert given[key] == level or level == "speed=fast"
    assert not {"kernels", "compile"} & typed & set(given)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["reference", "compiled", "fast"])
def test_a_typed_level_lies_over_the_file_of_a_run(gpu, tmp_path, level):
    """The file holds what another level came to."""
    file = tmp_path / "config.yaml"
    file.write_text("kernels: compiled\ncompile: false\ncuda_graphs: 'false'\nspeed: reference\n")
    assert settled(str(file)) == ("compiled", False, "false")
    assert settled(str(file), f"speed={level}") == settled(f"speed={level}")
    assert settled(str(file), f"speed={level}", "compile=true")[1] is True


def test_the_line_of_a_run_says_what_a_level_came_to(gpu):
    def line(*words: str, own_kernels: str | None = None) -> str | None:
        config = compose_one(list(words))
        facts = SimpleNamespace(reasons=reasons(config, GPU), own_kernels=own_kernels)
        return kernels_line(resolve(config, GPU), facts)

    assert line("speed=compiled") == "speed=compiled: kernels=compiled, compile=true"
    assert line("speed=reference", "kernels=fused", own_kernels="norms") == (
        "speed=reference: kernels=fused (as set), compile=false: norms"
    )
    layers = line("speed=compiled", "profile=torch", "profile.detail=layers")
    assert layers.endswith("compile=false (profile.detail=layers shows each layer by itself)")
    assert line("speed=fast", own_kernels="norms").startswith("kernels=fused (proved on this GPU")


def test_layers_are_shown_one_by_one(gpu):
    assert settled("profile=torch", "profile.detail=layers") == ("compiled", False, "false")


def test_the_jobs_of_a_sweep_are_compiled_alike(capsys):
    jobs = Jobs([Config(attention=name) for name in ("slow", "flash")], swept=True)
    assert [config.compile for config in jobs.configs] == [True, True]
    assert "compile=true in all jobs, as attention=slow has" in capsys.readouterr().err
    jobs = Jobs([Config(attention=name) for name in ("cudnn", "flash")], swept=True)
    assert [config.compile for config in jobs.configs] == [None, None]
    jobs = Jobs([Config(attention="slow"), Config(compile=False)], swept=True)
    assert [config.compile for config in jobs.configs] == [True, False]
    assert Jobs([Config(attention="slow")], swept=False).configs[0].compile is None
    levels = [Config(attention="slow", speed=level) for level in ("reference", "fast")]
    assert [config.compile for config in Jobs(levels, swept=True).configs] == [None, None]


def test_of_several_ranks_the_first_says_it(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    jobs = Jobs([Config(attention=name) for name in ("slow", "flash")], swept=True)
    assert [config.compile for config in jobs.configs] == [True, True]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words, added", [("attention=slow,flash", 1), ("attention=cudnn,flash", 0)]
)
def test_the_processes_of_an_experiment_are_compiled_alike(words, added):
    assert plan_experiment([words], 20).words.count("compile=true") == added


def test_an_optimizer_without_a_fused_form_is_left_to_the_compiler(gpu, monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "muon", replace(OPTIMIZERS["muon"], fused=None))
    assert settled("optimizer=muon")[:2] == ("compiled", True)
    told = reasons(compose_one(["optimizer=muon"]), GPU)["kernels"]
    assert told == "optimizer=muon has no form with kernels=fused"
