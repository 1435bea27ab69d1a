"""Memory: impossible runs are refused first, and an allocator's errors are explained."""

import pytest
import torch

from configs.schema import Config
from kernels.fused_model import make_model
from training.machine.memory_fit import (
    activation_bytes,
    check_model_fits,
    explain_out_of_memory,
    parameters_of_one_block,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "keys",
    [
        dict(n_layer=10**8, n_embd=6),  # small weights, but too many modules
        dict(n_embd=10**8, n_head=1),
        dict(n_layer=10**4, block_size=10**6, attention="slow"),
        dict(block_size=10**15),
    ],
    ids=str,
)
def test_a_model_beyond_all_memory_is_refused_before_it_is_made(config, keys):
    with pytest.raises(
        ValueError, match=r"^n_layer=.* GiB or more, but this machine has .*; lower"
    ):
        check_model_fits(config(**keys), CPU)


def test_a_model_beyond_what_pytorch_can_address_is_refused_likewise(config):
    for keys in (dict(n_embd=10**10, n_head=1), dict(n_embd=10**20, n_head=1)):
        with pytest.raises(ValueError, match=r"^n_layer=.*: no such model can be made: .*; lower"):
            check_model_fits(config(**keys), CPU)


def test_the_bound_is_the_memory_there_is(config, monkeypatch):
    tiny = config(n_layer=1, n_embd=32, block_size=32, eval_only=True)
    least = 16 * (12 * 32 * 32 + 32 * 32) + 30_000
    monkeypatch.setattr("training.machine.memory_fit.host_bytes", lambda: least)
    check_model_fits(tiny, CPU)
    monkeypatch.setattr("training.machine.memory_fit.host_bytes", lambda: least - 1)
    with pytest.raises(ValueError, match="^n_layer=1, n_embd=32"):
        check_model_fits(tiny, CPU)


def test_what_backward_needs_of_a_batch_counts_too(config, monkeypatch):
    keys = dict(n_layer=100, n_embd=16, n_head=1, block_size=64, batch_size=12)
    model = 100 * 30_000 + 16 * (100 * 12 * 16 * 16 + 64 * 16)
    batch = 100 * 12 * 64 * 16 * 8 * 4
    monkeypatch.setattr("training.machine.memory_fit.host_bytes", lambda: model + batch)
    check_model_fits(config(**keys), CPU)
    monkeypatch.setattr("training.machine.memory_fit.host_bytes", lambda: model + batch - 1)
    for fits in (dict(eval_only=True), dict(activation_checkpointing="full"), dict(batch_size=11)):
        check_model_fits(config(**keys | fits), CPU)
    with pytest.raises(ValueError, match="^batch_size=12, n_layer=100, n_embd=16, block_size=64: "):
        check_model_fits(config(**keys), CPU)


def test_what_backward_needs_is_less_than_what_pytorch_keeps(config):
    """A higher estimate would refuse a run that fits."""
    made = config(n_layer=3, n_embd=64, n_head=2, block_size=64, batch_size=8)
    kept = dict[int, int]()

    def keep(tensor):
        if not isinstance(tensor, torch.nn.Parameter):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    model = make_model(made, 65)
    tokens = torch.zeros(8, 64, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(tokens, tokens)
    least = activation_bytes(made, parameters_of_one_block(made))
    assert least < sum(kept.values()) < 4 * least, loss


@pytest.mark.parametrize(
    "keys, message",
    [
        (dict(n_layer=10**8), "^n_layer=100000000"),
        (dict(gradient_accumulation_steps=10**9), "with gradient_accumulation_steps=1000000000: "),
        (dict(batch_size=10**20), "^batch_size=100000000000000000000, "),
        (dict(eval_iters=10**14), "with eval_iters=100000000000000: .*lower one of these keys"),
    ],
)
def test_a_run_says_which_key_is_too_large(run, tmp_path, keys, message):
    with pytest.raises(ValueError, match=message):
        run(**keys)
    assert not (tmp_path / "out").exists()


def test_an_allocation_that_fails_on_a_cpu_names_the_key():
    with (
        pytest.raises(
            ValueError, match=r"^batch_size=64: .*machine's memory \(you tried .*bytes\)"
        ),
        explain_out_of_memory(Config()),
    ):
        torch.empty(1 << 55)
    with (
        pytest.raises(ValueError, match=r"^batch_size=64: .*n_layer"),
        explain_out_of_memory(Config()),
    ):
        bytearray(1 << 60)
    with pytest.raises(RuntimeError, match="a bug"), explain_out_of_memory(Config()):
        raise RuntimeError("a bug")
