"""kernels=auto and compile=null: the choice on GPUs that are not here, and its reasons."""

import pytest
import torch

from configs.command_line import compose_one
from configs.jobs import Jobs
from configs.schema import Config
from profiling.launch.experiment.plan import plan_experiment
from training.machine import kernel_choice
from training.machine.device import reasons, resolve

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


@pytest.mark.parametrize("triton", ["3.6.0", "3.7.1"])
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
        (dict(triton="3.9.0"), "", "our own kernels were not tested with Triton 3.9.0"),
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
