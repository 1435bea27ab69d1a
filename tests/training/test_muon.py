"""optimizer=muon: its parameters and updates, and that a run with it resumes."""

import math

import pytest
import torch

from kernels.fused_model import make_model
from kernels.linear import Linear
from model import GPT
from tests.helpers.checkpoints import assert_same
from training.optimizers.kinds import check_optimizer, make_optimizer
from training.optimizers.muon import ClippedMuon, Muon, group_by_shape, orthogonal
from training.optimizers.optimizer import set_learning_rate
from training.ranks.distributed import Ranks
from training.step.attention_proof import OperatorNames
from training.step.step import Step

CPU = torch.device("cpu")
LR = 0.02


def model_and_muon(config, **keys) -> tuple[GPT, Muon]:
    """A tiny model whose gradients are random, and its optimizer."""
    tiny = config(optimizer="muon", learning_rate=LR, min_lr=0.0, **keys)
    torch.manual_seed(0)
    model = make_model(tiny, 11)
    optimizer = make_optimizer(model, tiny, CPU)
    assert isinstance(optimizer, Muon)
    set_gradients(model, seed=1)
    return model, optimizer


def set_gradients(model: GPT, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("shape", [(3, 24, 24), (2, 64, 16), (2, 16, 64), (1, 1, 8)])
def test_singular_values_come_near_one_and_vectors_stay(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)) * 1e3
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    core = u.mT @ orthogonal(x).float() @ v.mT
    values = core.diagonal(dim1=1, dim2=2)
    # a square matrix of random numbers has a value near nought, which five steps do not lift
    assert values.max() < 1.3 and values.median() > 0.65
    off = core - torch.diag_embed(values)
    assert off.abs().max() < 0.1


def test_of_nothing_comes_nothing():
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4)).float(), torch.zeros(2, 3, 4))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="needs PyTorch 2.9")
def test_it_is_pytorch_s_muon_matrix_by_matrix(config):
    """PyTorch's Muon is given queries', keys' and values' weights as a matrix each."""
    model, optimizer = model_and_muon(config, weight_decay=0.3)
    matrices = optimizer.param_groups[0]["params"]
    ours = [part for p in matrices for part in p.detach().split(32 if len(p) == 96 else len(p))]
    assert len(ours) == len(matrices) + 2 * 2
    theirs = [torch.nn.Parameter(p.clone()) for p in ours]
    scaled = {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.95, "weight_decay": 0.3}
    reference = torch.optim.Muon(theirs, lr=LR, **scaled)
    for seed in (1, 2, 3):
        set_gradients(model, seed)
        gradients = [p.grad.split(32 if len(p) == 96 else len(p)) for p in matrices]
        for gradient, other in zip(sum(gradients, ()), theirs, strict=True):
            other.grad = gradient.clone()
        optimizer.step()
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        # one update moves a number by about 0.2 LR; theirs rounds to bfloat16 in another place
        assert (mine - other).norm() / math.sqrt(mine.numel()) < 0.02 * LR


def test_the_blocks_matrices_are_muon_s_and_the_rest_is_adamw_s(config):
    model, optimizer = model_and_muon(config, bias=True, weight_decay=0.25)
    names = {id(p): name for name, p in model.named_parameters()}
    matrices, tables, others = [
        {names[id(p)] for p in group["params"]} for group in optimizer.param_groups
    ]
    assert tables == {"transformer.wte.weight", "transformer.wpe.weight"}
    assert len(matrices) == 4 * 2 and all(".h." in name for name in matrices)
    assert others == set(names.values()) - matrices - tables
    plain_model, plain = make_model(model.config, 11), None
    plain_model.load_state_dict(model.state_dict())
    plain_config = config(learning_rate=LR, min_lr=0.0, weight_decay=0.25)
    plain = make_optimizer(plain_model, plain_config, CPU)
    set_gradients(plain_model, seed=1)
    optimizer.step()
    plain.step()
    other = dict(plain_model.named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other[name]) == (name not in matrices), name


def test_an_update_is_as_large_as_one_of_adamw(config):
    model, optimizer = model_and_muon(config, weight_decay=0.0)
    before = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
    optimizer.step()
    for old, new in zip(before, optimizer.param_groups[0]["params"], strict=True):
        assert (new - old).square().mean().sqrt().item() == pytest.approx(0.2 * LR, rel=0.35)


def test_a_gradient_that_is_no_number_reaches_neither_weights_nor_momentum(config):
    tiny = config(optimizer="muon")
    model, optimizer = model_and_muon(config)
    step = Step(model, optimizer, tiny, Ranks(0, 1, CPU))
    step.update(LR)
    set_gradients(model, seed=2)
    model.transformer.h[0].mlp.c_fc.weight.grad[0, 0] = math.nan
    weights = [p.detach().clone() for p in model.parameters()]
    momenta = {p: s["momentum"].clone() for p, s in optimizer.state.items() if "momentum" in s}
    assert momenta
    step.update(LR)
    for old, new in zip(weights, model.parameters(), strict=True):
        assert torch.equal(old, new)
    for parameter, momentum in momenta.items():
        assert torch.equal(optimizer.state[parameter]["momentum"], momentum)
    assert step.optimizer.skipped == 1


def test_its_rate_may_lie_in_a_tensor(config):
    """The rate lies in a tensor on CUDA, where a graph reads it."""
    model, optimizer = model_and_muon(config)
    other_model, other = model_and_muon(config)
    for group in other.param_groups[:1]:
        group["lr"] = torch.tensor(1.0)
    for each in (optimizer, other):
        set_learning_rate(each, 0.003)
        each.step()
    for one, two in zip(model.parameters(), other_model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-7)


def test_nothing_of_it_waits_for_a_number(config):
    """PyTorch's does, for its rate: a CUDA graph cannot."""
    _, optimizer = model_and_muon(config)
    optimizer.found_inf = torch.zeros(())
    set_learning_rate(optimizer, 0.0)
    optimizer.step()  # makes the state
    matrices = optimizer.param_groups[0]["params"]
    with OperatorNames() as seen, torch.no_grad():
        optimizer.step_alike(group_by_shape(matrices)[0], torch.tensor(0.01), 0.1)
    assert "baddbmm" in seen.names and "_local_scalar_dense" not in seen.names
    if hasattr(torch.optim, "Muon"):
        theirs = torch.optim.Muon(matrices, lr=torch.tensor(0.01))
        with OperatorNames() as seen:
            theirs.step()
        assert "_local_scalar_dense" in seen.names


def test_state_is_of_the_shapes_that_a_checkpoint_is_held_to(config):
    _, optimizer = model_and_muon(config)
    optimizer.step()
    state = optimizer.state_dict()["state"]
    shapes = {n: {k: v.shape for k, v in each.items()} for n, each in state.items()}
    assert shapes == optimizer.state_shapes()
    assert len(shapes) == 4 + 2 + 5  # four shapes, two tables, five norms


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_run_resumes_as_if_it_had_not_stopped(run, tmp_path, accumulation):
    keys = dict(optimizer="muon", positions="rotary", always_save_checkpoint=True, dropout=0.1)
    keys |= dict(gradient_accumulation_steps=accumulation)
    whole = run(**keys, out_dir=str(tmp_path / "whole"))
    halves = dict(keys, out_dir=str(tmp_path / "halves"))
    run(**halves, max_iters=4)
    assert_same(whole, run(**halves, init_from="resume"))


def test_another_optimizer_s_checkpoint_is_not_resumed(run):
    run(max_iters=4, always_save_checkpoint=True)
    with pytest.raises(ValueError, match="optimizer=muon: the checkpoint has adamw"):
        run(optimizer="muon", init_from="resume")


@pytest.mark.slow
def test_it_learns_faster_than_adamw_from_the_same_start(run, rows):
    keys = dict(max_iters=40, lr_decay_iters=40, min_lr=0.0, eval_interval=40)
    plain, ours = (rows(run(**keys, optimizer=name))[40] for name in ("adamw", "muon"))
    assert ours["val/loss"] < plain["val/loss"]


def test_with_our_own_kernels_it_writes_the_copies_that_products_read(config):
    model, optimizer = model_and_muon(config, kernels="fused", dtype="bfloat16")
    assert type(optimizer) is ClippedMuon
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    assert optimizer.copies == {layer.weight: layer.copy for layer in layers}
    others = [p for group in optimizer.param_groups[1:] for p in group["params"]]
    assert optimizer.updated == others and len(optimizer.decays) == len(others)


def test_float16_is_refused(config):
    check_optimizer(config(optimizer="muon", dtype="float32"))
    check_optimizer(config(optimizer="adamw", dtype="float16"))
    with pytest.raises(ValueError, match="optimizer=muon: does not work with dtype=float16"):
        check_optimizer(config(optimizer="muon", dtype="float16"))
