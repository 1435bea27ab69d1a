"""16-bit copies of weights, in the whole model and under the optimizer that writes them."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

IN_16_BITS = r"""
import sys
import torch
from configs.model import ModelConfig
from kernels.fused_model import make_model
from training.optimizers.kinds import keep_copies

torch.set_default_device(sys.argv[1])

keys = dict(n_head=2, n_embd=64, block_size=4, dropout=0.0, attention="math", kernels="fused")
torch.manual_seed(0)  # or the tokens are others each time
x, y = torch.randint(17, (2, 2, 4))


def in_16_bits(copies, compiled):
    torch.manual_seed(0)
    n_layer = 1 if compiled else 2  # traced blocks are alike
    model = make_model(ModelConfig(n_layer=n_layer, **keys), 17)
    if copies:
        assert len(keep_copies(model, "bfloat16")) == 4 * n_layer + 1
    call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    with torch.autocast(x.device.type, torch.bfloat16):
        _, loss = call(x, y)
    loss.backward()
    with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16):
        logits, evaluated = model.eval()(x, y)
    assert logits.shape == (2, 4, 17)
    return torch.stack((loss, evaluated)), {n: p.grad for n, p in model.named_parameters()}


for compiled in (False, True):
    expected, theirs = in_16_bits(False, compiled)
    losses, ours = in_16_bits(True, compiled)
    torch.testing.assert_close(losses, expected, rtol=1e-3 if x.is_cuda else 0, atol=0)
    for name, gradient in theirs.items():
        assert ours[name].dtype == torch.float32 and ours[name].is_contiguous()
        if x.is_cuda:  # where the product of a gradient leaves float32, it is not rounded first
            torch.testing.assert_close(ours[name], gradient, rtol=2e-2, atol=2e-3, msg=name)
        else:
            assert torch.equal(ours[name], gradient), (name, compiled)
print("right")
"""

UPDATES = r"""
import sys
from copy import deepcopy
import torch
from configs.schema import Config
from kernels.fused_model import make_model
from profiling.recording.spans import NoSpans
from training.ranks.distributed import Ranks
from training.optimizers.kinds import make_optimizer
from training.optimizers.optimizer import ClippedAdamW
from training.step.step import Step

torch.set_default_device(sys.argv[1])

torch.manual_seed(0)  # or the tokens are others each time
x, y = torch.randint(17, (2, 2, 4))


def losses_of(kernels, dtype):
    torch.manual_seed(0)
    keys = dict(n_layer=1, n_head=2, n_embd=32, block_size=4, batch_size=2, dropout=0.0)
    config = Config(
        **keys, attention="math", compile=False, kernels=kernels, dtype=dtype,
        gradient_accumulation_steps=2, learning_rate=1e-2, device=x.device.type,
    )
    model = make_model(config, 17)
    ranks = Ranks(0, 1, x.device)
    step = Step(model, make_optimizer(model, config, x.device), config, ranks, NoSpans())
    assert isinstance(step.optimizer, ClippedAdamW) == (kernels == "fused")
    seen = []
    for _ in range(4):
        for half in (slice(0, 1), slice(1, 2)):
            step.backward(step.forward(x[half], y[half]))
        seen.append(step.loss.item())
        step.update(1e-2)
    return model, seen, step


for dtype, rtol in (("float32", 1e-4), ("bfloat16", 1e-2), ("float16", 1e-2)):
    _, expected, _ = losses_of("compiled", dtype)
    model, seen, step = losses_of("fused", dtype)
    assert expected[-1] < expected[0] - 0.1, expected
    torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected), rtol=rtol, atol=0)
    kept = [layer.copy for layer in model.modules() if getattr(layer, "copy", None) is not None]
    assert len(kept) == (0 if dtype == "float32" else 5)
    assert dtype == "float16" or step.optimizer.skipped == 0
    before = [p.clone() for p in step.parameters], deepcopy(step.optimizer.state_dict())
    step.optimizer.rehearse()  # of a resumed run too: it changes nothing
    after = list(step.parameters), step.optimizer.state_dict()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(p.grad is None for p in step.parameters)
print("right")
"""


# of one rank, so that their average is what they were; buckets of a few kB, so that there are many
IN_BUCKETS = r"""
import sys
import torch
import torch.distributed as dist
from configs.schema import Config
from kernels.fused_model import make_model
from training.ranks.distributed import Ranks
from training.step.layout import make_layout
from training.optimizers.kinds import make_optimizer
from training.step.replicas import Replicas
from training.step.step import Step

device = torch.device(sys.argv[1])
dist.init_process_group(
    "nccl" if device.type == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1
)
keys = dict(n_layer=1, n_head=2, n_embd=32, block_size=4, dropout=0.2, attention="math")
keys |= dict(compile=False, kernels="fused", dtype="bfloat16", gradient_accumulation_steps=2)


def weights_of(in_buckets, recomputed):
    torch.manual_seed(0)
    config = Config(**keys, activation_checkpointing=recomputed, device=device.type)
    config.bucket_mb = 0.01
    ranks = Ranks(0, 1, device)
    model = make_model(config, 17).to(device)
    layout = make_layout(model, config, ranks)
    if in_buckets:
        layout = Replicas(layout.model, config, ranks)
    step = Step(model, make_optimizer(model, config, device), config, ranks, layout=layout)
    sent = []
    if in_buckets:
        average = layout.average
        layout.average = lambda bucket: sent.append(bucket) or average(bucket)
    x, y = torch.randint(17, (2, 2, 4), device=device)
    for _ in range(3):  # behind the first DDP makes its buckets anew
        with torch.profiler.profile(record_shapes=True) as profile:
            for half in (slice(0, 1), slice(1, 2)):
                step.backward(step.forward(x[half], y[half]))
        step.average_gradients()
        step.update(1e-2)
    copies = [e for e in profile.events() if e.name == "torch::distributed::reducer::copy_"]
    copied = [tuple(e.input_shapes[0]) for e in copies]
    matrices = {tuple(p.shape) for name, p in model.named_parameters() if name.endswith("weight")}
    matrices -= {(32,), (17, 32), (4, 32)}  # norms, and what is embedded
    assert len(matrices) == 4 and not matrices & {*copied}, copied
    assert ((32,) in copied) == in_buckets
    assert step.optimizer.skipped == 0 and len(sent) >= (9 if in_buckets else 0), len(sent)
    return [p.detach() for p in step.parameters]


expected = weights_of(False, "none")
for in_buckets, recomputed in ((True, "none"), (False, "selective"), (True, "full")):
    for ours, theirs in zip(weights_of(in_buckets, recomputed), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3 if device.type == "cuda" else 0)
dist.destroy_process_group()
print("right")
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", LONG_DEVICES)
def test_the_model_has_autocast_s_numbers_without_its_casts(device):
    run(IN_16_BITS, device)


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_four_updates_of_two_micro_batches_are_as_pytorch_makes_them(device):
    run(UPDATES, device)


@pytest.mark.slow
@pytest.mark.parametrize("device", LONG_DEVICES)
def test_gradients_in_buckets_and_recomputed_blocks_come_to_the_same_weights(device):
    run(IN_BUCKETS, device)
