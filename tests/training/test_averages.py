"""Averaging of gradients by ranks: what is chosen and why, what is refused, what is tried first."""

import re
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import pynvml
import pytest
import torch
import yaml

from configs.schema import Config
from configs.sharing import NEEDED
from profiling.analysis.runs.folder import read_run
from training import checks
from training.checks import agree_on_averages
from training.machine import kernel_choice, parallel
from training.machine.device import reasons, resolve
from training.machine.parallel import (
    OPEN,
    WORKING,
    averages_line,
    check_reduce_dtype,
    check_shard_update,
    chosen_averages,
    decide_all_reduce,
)
from training.ranks import all_reduce
from training.ranks.distributed import Ranks

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


@pytest.mark.parametrize(
    "ranks, on_host, device, keys, message",
    [
        (1, 1, GPU, {}, "there is only one rank"),
        (
            4,
            4,
            GPU,
            dict(parallel="fsdp"),
            "only works with parallel=ddp, but this run has parallel=fsdp",
        ),
        (4, 4, CPU, {}, "only GPUs have copy engines, but this run is on cpu"),
        (
            4,
            2,
            GPU,
            {},
            "copy engines reach only the GPUs of one host, but this run has several hosts",
        ),
        (4, 4, GPU, {}, "needs PyTorch 2.10 or newer, with NCCL 2.28"),
    ],
)
def test_copies_are_refused_where_there_are_none(
    config, monkeypatch, ranks, on_host, device, keys, message
):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(on_host))
    monkeypatch.setattr(parallel, "has_copies", lambda: False)
    with pytest.raises(ValueError, match=f"^all_reduce=copies: {message}.*; use all_reduce=auto$"):
        decide_all_reduce(config(all_reduce="copies", **keys), device, ranks)
    auto = decide_all_reduce(config(all_reduce="auto", **keys), device, ranks)
    assert auto.value == "collective" and re.match(message, auto.reason)


class LinkedGpus:
    """NVML, as far as it is asked whether NVLink connects GPUs; `state` of each pair, or no NVML"""

    nvmlInit = nvmlShutdown = staticmethod(lambda: None)
    nvmlDeviceGetHandleByUUID = staticmethod(lambda uuid: uuid)

    def __init__(self, state: int | None):
        self.state, self.asked = state, []

    def nvmlDeviceGetP2PStatus(self, one, other, index):
        assert index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        if self.state is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self.asked.append((one, other))
        return self.state


@pytest.fixture
def gpus(monkeypatch, config):
    """gpus(ranks, ...): a run of GPT-2 124M on such GPUs, and what is decided for it, with why."""
    OK = pynvml.NVML_P2P_STATUS_OK

    def decided(ranks=2, capability=(9, 0), nvlink=OK, visible=8, **keys):
        nvml = LinkedGpus(nvlink)
        for name in ("nvmlInit", "nvmlShutdown", *(n for n in dir(nvml) if "Device" in n)):
            monkeypatch.setattr(pynvml, name, getattr(nvml, name))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
        monkeypatch.setattr(parallel, "has_copies", lambda: True)
        monkeypatch.setattr(kernel_choice, "triton_version", lambda: "3.7.1")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
        properties = [SimpleNamespace(uuid=f"uuid{number}") for number in range(visible)]
        monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
        shape = dict(n_layer=12, n_head=12, n_embd=768, attention="auto", compile=None)
        shape |= dict(device="auto", dtype="auto", all_reduce="auto", shard_update=None)
        asked = config(**shape | keys)
        found, why = resolve(asked, GPU, ranks), reasons(asked, GPU, ranks)
        line = averages_line(chosen_averages(found, why), why)
        return (found.all_reduce, found.shard_update), line, nvml.asked

    return decided


@pytest.mark.parametrize("ranks", [2, 4])
def test_copies_and_a_shared_update_are_chosen_where_they_gained(gpus, ranks):
    found, line, asked = gpus(ranks=ranks)
    pairs = set(combinations([f"GPU-uuid{rank}" for rank in range(ranks)], 2))
    assert found == ("copies", True) and set(asked) == pairs
    assert line == (
        f"all_reduce=copies: NVLink connects the {ranks} GPUs of this run; "
        f"shard_update=true: gains with all_reduce=copies on {ranks} GPUs"
    )


def test_by_default_both_are_chosen_and_can_be_switched_off(gpus):
    default = {key: getattr(Config, key) for key in ("all_reduce", "shard_update")}
    assert gpus(**default)[0] == ("copies", True)
    assert gpus(all_reduce="collective", shard_update=False) == (("collective", False), "", [])
    assert gpus(all_reduce="copies", shard_update=True)[:2] == (("copies", True), "")


@pytest.mark.parametrize(
    "machine, reason",
    [
        (dict(ranks=3), "copies were measured on 2 and 4 GPUs, and this run has 3"),
        (dict(capability=(8, 0)), "copies were not measured on a GPU"),
        (dict(nvlink=pynvml.NVML_P2P_STATUS_NOT_SUPPORTED), "NVML does not say that NVLink "),
        (dict(nvlink=None), "NVML does not say that NVLink connects the GPUs"),
        (dict(visible=1), "this rank does not see the GPUs of all ranks"),
        (dict(n_layer=11), "this model is smaller than GPT-2 124M, the smallest "),
    ],
    ids=str,
)
def test_collectives_are_chosen_elsewhere_with_the_reason(gpus, machine, reason):
    found, line, _ = gpus(**machine)
    assert found == ("collective", False)
    without = "; shard_update=false: gains only with all_reduce=copies"
    assert re.fullmatch(f"all_reduce=collective: {reason}.*{without}", line), line


@pytest.mark.parametrize(
    "keys, reason",
    [
        (dict(kernels="compiled"), "needs kernels=fused, but this run has kernels=compiled"),
        (dict(optimizer="muon"), "needs kernels=fused|needs optimizer=adamw"),
        (dict(dtype="float32"), "needs kernels=fused, but this run has kernels=compiled"),
        (dict(bucket_mb=160), "bucket_mb=160 may leave no bucket of blocks alone"),
        (dict(n_embd=774, n_head=9), "weights of n_embd=774 cannot be split into equal parts"),
    ],
    ids=str,
)
def test_copies_without_a_shared_update_where_that_does_not_work(gpus, keys, reason):
    found, line, _ = gpus(**keys)
    assert found == ("copies", False)
    assert re.search(f"; shard_update=false: ({reason})", line), line


def test_a_shared_update_is_chosen_only_beside_copies_on_measured_gpus(gpus):
    assert gpus(ranks=3, all_reduce="copies")[:2] == (
        ("copies", False),
        "shard_update=false: copies were measured on 2 and 4 GPUs, and this run has 3",
    )
    assert gpus(all_reduce="copies")[0] == ("copies", True)
    assert gpus(all_reduce="collective")[0] == ("collective", False)
    assert gpus(all_reduce="auto", shard_update=True, ranks=3)[0] == ("collective", True)


REFUSED = "all_reduce=copies: NCCL copies with kernels here (nccl); use all_reduce=collective"


class NoCopies:
    """Copies that NCCL makes with kernels."""

    memory = staticmethod(nullcontext)

    def __init__(self, ranks, rest):
        self.begin = [].append

    def wait(self):
        raise ValueError(REFUSED)


CHOSEN = dict(all_reduce="copies", shard_update=True)


def test_copies_that_were_chosen_but_fail_give_way_to_collectives(config, monkeypatch):
    monkeypatch.setattr(all_reduce, "Copies", NoCopies)
    asked, alone = config(**OPEN), Ranks(0, 1, CPU)
    found, why = agree_on_averages(asked, replace(asked, **CHOSEN), alone)
    assert (found.all_reduce, found.shard_update) == ("collective", False)
    said = "copies do not work here: NCCL copies with kernels here (nccl)"
    assert why["all_reduce"] == why["shard_update"] == said
    asked = replace(asked, reduce_dtype="bfloat16")
    with pytest.raises(ValueError, match="^reduce_dtype=bfloat16: needs shard_update=true"):
        agree_on_averages(asked, replace(asked, **CHOSEN), alone)


def test_a_gpu_without_room_for_copies_ends_the_run_at_once(config, monkeypatch):
    def wait(self):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(NoCopies, "wait", wait)
    monkeypatch.setattr(all_reduce, "Copies", NoCopies)
    asked = config(**OPEN)
    with pytest.raises(torch.OutOfMemoryError):
        agree_on_averages(asked, replace(asked, **CHOSEN), Ranks(0, 1, CPU))


@pytest.mark.parametrize("failure", [None, "all_reduce=copies was typed"])
def test_copies_that_work_or_were_typed_stay(config, monkeypatch, failure):
    monkeypatch.setattr(NoCopies, "wait", lambda self: None)
    monkeypatch.setattr(all_reduce, "Copies", NoCopies if failure is None else None)
    monkeypatch.setattr(checks, "reasons", lambda *_: why)
    why = {"all_reduce": "NVLink"} if failure is None else {"shard_update": "gains"}
    found = config(**CHOSEN)
    assert agree_on_averages(found, found, Ranks(0, 1, CPU)) == (found, why)


@pytest.mark.parametrize("chosen", [(CHOSEN, WORKING), (WORKING, CHOSEN)], ids=str)
def test_ranks_that_chose_differently_use_collectives_and_try_nothing(config, monkeypatch, chosen):
    monkeypatch.setattr(all_reduce, "Copies", None)
    asked = config(**OPEN, gradient_accumulation_steps=2)
    ranks = SimpleNamespace(world_size=2, device=CPU, gather_objects=lambda _: list(chosen))
    found, why = agree_on_averages(asked, replace(asked, **chosen[0]), ranks)
    assert (found.all_reduce, found.shard_update) == ("collective", False)
    assert why["all_reduce"].startswith("the ranks chose differently")


# no decision knows that a CPU has no copy engines, so the copies are tried
TRIES = """
from configs import command_line
from training.machine import parallel
import train

parallel.no_copies = parallel.no_gain = lambda *_: None
command_line.run(train.train)
"""


@pytest.mark.slow
def test_ranks_whose_copies_fail_when_tried_train_with_collectives(together, tmp_path):
    """config.yaml leaves the choice to the next start, and says what was chosen in this one."""
    script = tmp_path / "tries.py"
    script.write_text(TRIES)
    keys = dict(all_reduce="auto", shard_update="null", gradient_accumulation_steps=2, max_iters=2)
    out_dir, said = together(2, script, **keys)
    assert said.count("all_reduce=collective: copies do not work here: ") == 1
    assert (out_dir / "summary.json").exists()
    written = yaml.safe_load((out_dir / "config.yaml").read_text())
    assert (written["all_reduce"], written["shard_update"]) == ("auto", None)
    run = read_run(out_dir)
    assert (run.config["all_reduce"], run.config["shard_update"]) == ("collective", False)


@pytest.mark.parametrize(
    "ranks, keys, message",
    [
        (1, {}, "needs several ranks, but there is one"),
        (4, dict(parallel="fsdp"), "needs parallel=ddp, but this run has parallel=fsdp"),
        (4, dict(kernels="compiled"), "needs kernels=fused, but this run has kernels=compiled"),
        (4, dict(optimizer="muon"), "needs optimizer=adamw, but this run has optimizer=muon"),
        (4, dict(dtype="float16"), "needs dtype=bfloat16, but this run has dtype=float16"),
    ],
)
def test_a_shared_update_is_refused_where_there_are_no_parts(config, ranks, keys, message):
    fitting = dict(parallel="ddp", kernels="fused", dtype="bfloat16") | keys
    with pytest.raises(ValueError, match=f"^shard_update=true: {message}.* shard_update=false$"):
        check_shard_update(config(shard_update=True, **fitting), ranks)
    check_shard_update(config(**fitting), ranks)
    check_shard_update(config(**{**fitting, **NEEDED}, shard_update=True), 4)


@pytest.mark.parametrize(
    "ranks, keys, message",
    [
        (2, dict(shard_update=False), "shard_update=true, but this run has shard_update=false"),
        (2, dict(compile=True), "compile=false, but this run has compile=true"),
        (4, {}, "gradient_accumulation_steps=4, but this run has gradient_accumulation_steps=2"),
    ],
)
def test_gradients_are_not_sent_in_16_bits_where_no_product_writes_them(
    config, ranks, keys, message
):
    fitting = dict(shard_update=True, compile=False, gradient_accumulation_steps=2)
    with pytest.raises(
        ValueError, match=f"^reduce_dtype=bfloat16: needs {message}; use reduce_dtype=float32$"
    ):
        check_reduce_dtype(config(reduce_dtype="bfloat16", **{**fitting, **keys}), ranks)
    check_reduce_dtype(config(reduce_dtype="bfloat16", **fitting), 2)
    check_reduce_dtype(config(**{**fitting, **keys}), ranks)
