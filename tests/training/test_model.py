import copy
import os
import shutil

import pytest
import torch
from torch.nn import functional as F

from configs.backends import AUTO, BACKENDS, CHOICES, TABLE
from configs.model import ModelConfig
from configs.schema import Config
from kernels.fused_model import make_model
from model import GPT, rotate_qk, rotation
from training.step.compilation import compile_model

ON_CPU = [*(each.name for each in TABLE if not each.cuda_only), AUTO]
WITH_DROPOUT = [name for name in ON_CPU if name == AUTO or BACKENDS[name].dropout]
TINY = dict(n_layer=2, n_head=2, n_embd=32, block_size=32, dropout=0.0)
VOCAB = 17


def tiny(seed: int = 0, **keys) -> GPT:
    torch.manual_seed(seed)
    return make_model(ModelConfig(**{**TINY, **keys}), VOCAB)


def batch(seed: int = 0, shape: tuple[int, int] = (3, 32)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randint(VOCAB, (2, *shape), generator=generator)
    return x, y


def test_the_main_experiment_has_10_65_million_parameters():
    with torch.device("meta"):
        model = make_model(Config(), 65)
    counts = [p.numel() for p in model.parameters()]
    blocks = 6 * (12 * 384**2 + 2 * 384)  # matrices and two norms
    assert sum(counts) == blocks + 65 * 384 + 256 * 384 + 384  # tied weights count once
    assert model.parameter_count() == sum(counts) - 256 * 384 == 10_646_784
    assert f"{model.parameter_count() / 1e6:.2f}" == "10.65"
    n, attention = model.parameter_count(), 12 * 6 * 384 * 256
    assert model.flops_per_token() == 6 * n + attention


def test_head_and_embedding_are_one_tensor():
    model = tiny()
    assert model.lm_head.weight is model.transformer.wte.weight
    model.load_state_dict(copy.deepcopy(tiny(seed=1).state_dict()))
    assert model.lm_head.weight is model.transformer.wte.weight


def test_residual_projections_start_smaller():
    model = tiny(n_layer=8, n_embd=128)
    for block in model.transformer.h:
        for weight in (block.attn.c_proj.weight, block.mlp.c_proj.weight):
            assert weight.std().item() == pytest.approx(0.02 / (2 * 8) ** 0.5, rel=0.1)
        assert block.attn.c_attn.weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_a_checkpoint_fits_every_backend(bias):
    x, y = batch()
    reference = tiny(attention="slow", bias=bias)
    state, loss = reference.state_dict(), reference(x, y)[1]
    for attention in CHOICES:
        model = tiny(seed=5, attention=attention, bias=bias)
        assert list(model.state_dict()) == list(state)
        model.load_state_dict(state)
        if attention not in ON_CPU:
            continue
        with torch.no_grad():
            torch.testing.assert_close(model(x, y)[1], loss.detach(), msg=attention)


def test_rotary_queries_and_keys_know_only_how_far_apart_they_are():
    heads, width = 2, 8
    row = torch.randn(3 * heads * width, generator=torch.Generator().manual_seed(0))
    qkv = row.expand(1, 12, -1)  # the same at every position
    turned = rotate_qk(qkv, rotation(12, width), heads).view(12, 3, heads, width)
    q, k, v = turned.unbind(1)
    assert torch.equal(v.flatten(1), qkv[0, :, 2 * heads * width :])
    scores = torch.einsum("qhd,khd->hqk", q, k)
    torch.testing.assert_close(scores[:, 1:, 1:], scores[:, :-1, :-1])
    assert not torch.allclose(scores[:, 0, 0], scores[:, 5, 0])
    torch.testing.assert_close(q.norm(dim=-1), q[:1].norm(dim=-1).expand(12, heads))


@pytest.mark.parametrize("attention", ["slow", "math", "auto"])
def test_rotary_models_have_no_table_of_positions_and_tell_the_order(attention):
    model = tiny(positions="rotary", attention=attention).eval()
    learned = tiny()
    assert set(learned.state_dict()) - set(model.state_dict()) == {"transformer.wpe.weight"}
    assert model.parameter_count() == learned.parameter_count()
    x, y = batch()
    before = model(x, y)[1]
    same = tiny(positions="rotary", attention="slow").eval()
    torch.testing.assert_close(same(x, y)[1], before)
    swapped = torch.cat((x[:, 1:2], x[:, :1], x[:, 2:]), dim=1)
    assert not torch.allclose(model(swapped)[0], model(x)[0], atol=1e-6)


def test_loss_is_the_mean_over_the_targets_that_count():
    model = tiny()
    x, y = batch()
    logits, loss = model(x, y)
    assert logits.shape == (3, 32, VOCAB)
    each = -logits.log_softmax(-1).gather(-1, y[..., None])[..., 0]
    torch.testing.assert_close(loss, each.mean())
    y[0, :20] = -1
    y[2] = -1
    torch.testing.assert_close(model(x, y)[1], each[y != -1].mean())


def test_without_targets_only_the_last_token_is_predicted():
    model = tiny().eval()
    x, y = batch()
    logits, loss = model(x)
    assert logits.shape == (3, 1, VOCAB) and loss is None
    torch.testing.assert_close(logits[:, 0], model(x, y)[0][:, -1])


@pytest.mark.parametrize("attention", ON_CPU)
def test_no_token_sees_the_future(attention):
    model = tiny(attention=attention).eval()
    x, y = batch()
    changed = x.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % VOCAB
    with torch.no_grad():
        before, after = model(x, y)[0], model(changed, y)[0]
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert not torch.allclose(before[:, 20:], after[:, 20:])


@pytest.mark.parametrize("attention", WITH_DROPOUT)
def test_attention_dropout_drops_in_training_alone(attention):
    model = tiny(attention=attention, dropout=0.5)
    for module in model.modules():  # what is left can only be attention's own
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    x, y = batch()
    with torch.no_grad():
        model.train()
        assert model(x, y)[1] != model(x, y)[1]
        model.eval()
        assert model(x, y)[1] == model(x, y)[1]
    off = tiny(attention=attention, dropout=0.0)
    off.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(x, y)[1], off(x, y)[1])


@pytest.mark.parametrize("kept", ["transformer.drop", "h.0.attn.resid_dropout", "mlp.dropout"])
def test_every_other_dropout_drops_in_training_alone(kept):
    model = tiny(dropout=0.5)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and not name.endswith(kept):
            module.p = 0.0
    for block in model.transformer.h:
        block.attn.dropout = 0.0
    x, y = batch()
    assert model(x, y)[1] != model(x, y)[1]
    model.eval()
    assert model(x, y)[1] == model(x, y)[1]


@pytest.mark.parametrize(
    "keys, message",
    [
        (dict(n_embd=33), "n_embd=33: not divisible by n_head=2; 32 is possible"),
        (dict(n_embd=6, positions="rotary"), "positions=rotary: .* a head has 3"),
        (dict(n_layer=0), "n_layer=0: must be at least 1"),
        (dict(dropout=1.0), "dropout=1.0: must be"),
        (dict(attention="flex", dropout=0.1), "attention=flex: .*dropout=0"),
    ],
)
def test_an_impossible_shape_is_refused_by_name(keys, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{**TINY, **keys})


needs_compiler = pytest.mark.skipif(
    not shutil.which(os.environ.get("CXX", "g++")), reason="torch.compile needs a C++ compiler"
)


@pytest.mark.slow
@needs_compiler
def test_compiled_has_no_break_and_the_same_loss():
    """A model in one graph has a single layer: inductor takes seconds for each.

    Blocks that inductor compiles one by one are in test_parallel.py.
    """
    check_compiled(attention="slow", compile_scope="model", n_layer=1)
    assert torch._dynamo.utils.counters["inductor"]["fuse_attention"] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_to_no_code")
@pytest.mark.parametrize("keys", [{"compile_scope": "model"}, {"positions": "rotary"}], ids=str)
def test_traced_has_no_break_and_the_same_loss(keys):
    check_compiled(**{"attention": "flash", "compile_scope": "block", **keys})


def check_compiled(**keys):
    config = Config(
        **{**TINY, "n_embd": 16, "block_size": 8, "compile": True, "device": "cpu", **keys}
    )
    x, y = batch(shape=(2, 8))
    torch.manual_seed(0)
    eager = make_model(config, VOCAB)
    model = copy.deepcopy(eager)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    forward = compile_model(model, config)
    eager_loss, loss = eager(x, y)[1], forward(x, y)[1]
    eager_loss.backward()
    loss.backward()
    assert not torch._dynamo.utils.counters["graph_break"]
    # one for the model; else one for the embedding, one for a block, which all share, and the loss
    graphs = 1 if config.compile_scope == "model" else 3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    torch.testing.assert_close(loss, eager_loss, rtol=1e-5, atol=1e-6)
    for (name, a), (_, b) in zip(model.named_parameters(), eager.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_cross_entropy_ignores_what_batches_mask():
    from data.batches import IGNORED

    logits, target = torch.randn(4, VOCAB), torch.tensor([1, 2, IGNORED, 3])
    expected = F.cross_entropy(logits[[0, 1, 3]], target[[0, 1, 3]])
    torch.testing.assert_close(F.cross_entropy(logits, target, ignore_index=-1), expected)
