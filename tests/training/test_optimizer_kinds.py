"""The table of optimizers: its classes, what they keep and skip, and what has no fused form."""

from dataclasses import replace

import pytest
import torch

from configs.optimizers import OPTIMIZERS
from kernels.fused_model import make_model
from profiling.recording.spans import NoSpans
from training.checks import resolve_and_check
from training.optimizers import kinds
from training.optimizers.optimizer import AdamW, ClippedAdamW

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_row_names_its_classes(name):
    row = OPTIMIZERS[name]
    assert issubclass(kinds.class_of(row.plain), AdamW)
    assert row.fused is None or issubclass(kinds.class_of(row.fused), ClippedAdamW)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_row_counts_what_the_optimizer_keeps(name, config):
    model = make_model(tiny := config(optimizer=name), 11)
    optimizer = kinds.make_optimizer(model, tiny, CPU)
    numbers = [
        shape.numel() for each in optimizer.state_shapes().values() for shape in each.values()
    ]
    matrices = sum(p.numel() for p in model.transformer.h.parameters() if p.dim() == 2)
    others = sum(p.numel() for p in model.parameters()) - matrices
    row = OPTIMIZERS[name]
    kept = row.matrix_moments * matrices + row.moments * others
    assert kept <= sum(numbers) <= kept + len(list(model.parameters()))  # and step counts


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_skips_updates_from_a_bad_norm_on(name, config):
    model = make_model(tiny := config(optimizer=name), 11)
    optimizer = kinds.make_optimizer(model, tiny, CPU)
    optimizer.skip_bad_updates()
    parameters, scaler = list(model.parameters()), torch.amp.GradScaler("cpu", enabled=False)
    before = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.grad = torch.full_like(p, torch.inf)
    optimizer.prepare_gradients(parameters, scaler, NoSpans())
    optimizer.step()
    assert all(torch.equal(p, was) for p, was in zip(parameters, before, strict=True))
    tensors = [t for state in optimizer.state.values() for t in state.values()]
    assert all(t.isfinite().all() for t in tensors)


def test_an_optimizer_without_a_fused_form_is_refused_with_fused_kernels(config, monkeypatch):
    """The run would train with another optimizer in its place."""
    monkeypatch.setitem(OPTIMIZERS, "muon", replace(OPTIMIZERS["muon"], fused=None))
    tiny = config(optimizer="muon", kernels="fused", device="cuda", attention="auto")
    message = "^optimizer=muon: does not support kernels=fused; use kernels=compiled$"
    with pytest.raises(ValueError, match=message):
        kinds.make_optimizer(make_model(replace(tiny, kernels="compiled"), 11), tiny, CPU)
    with pytest.raises(ValueError, match=message):
        kinds.check_optimizer(tiny)
    resolve_and_check(config(optimizer="muon"), CPU, 1)
