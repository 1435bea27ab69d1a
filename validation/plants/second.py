"""The second series: ten other faults, added after the rules of the verdict had been made."""

import numpy as np
import torch
from torch import Tensor, nn

from data.batches import Batches
from data.standin import stand_in_text
from model import GPT, CausalSelfAttention, LayerNorm, attend
from training.step.graphs import GraphedStep
from training.step.step import Step
from validation.plants.planting import Plant, call_before, call_before_update, replace_method

# nothing is compiled: a graph of the kernels one by one is made in no time
EAGER = "attention=flash kernels=compiled compile=false"
GRAPHS = f"{EAGER} cuda_graphs=true"
# flash has no kernel for float32
FLOATS = "attention=efficient kernels=compiled compile=false cuda_graphs=true"


def plain_step(step: Step | GraphedStep) -> Step:
    return step.step if isinstance(step, GraphedStep) else step


def reencoded_text() -> None:
    """Encode 300,000 characters as tokens again for each batch."""
    text = stand_in_text(300_000)
    ids = {character: number for number, character in enumerate(sorted(set(text)))}
    call_before(Batches, "draw", lambda *_: np.array([ids[character] for character in text]))


def ranks_of_targets() -> None:
    """Sort the scores of 4,096 tokens in Python, to find the rank of the target."""
    outputs: list[tuple[Tensor, Tensor]] = []
    forward = GPT.forward

    def keep_outputs(model: GPT, tokens: Tensor, targets: Tensor | None = None) -> object:
        result = forward(model, tokens, targets)
        if targets is not None:
            outputs[:] = [(result[0].detach().flatten(0, 1)[:4096], targets.flatten()[:4096])]
        return result

    def mean_reciprocal_rank(*_: object) -> float:
        ((logits, targets),) = outputs
        rows = zip(logits.tolist(), targets.tolist(), strict=True)
        ranks = [sorted(row, reverse=True).index(row[target]) for row, target in rows]
        return sum(1 / (1 + rank) for rank in ranks) / len(ranks)

    replace_method(GPT, "forward", keep_outputs)
    call_before_update(mean_reciprocal_rank)


def snapshot_in_memory() -> None:
    """Copy weights and AdamW's moments to pageable memory before each update."""
    homes: dict[int, Tensor] = {}

    def snapshot(step: Step | GraphedStep, _: float) -> None:
        states = plain_step(step).optimizer.state.values()
        moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq")]
        for tensor in (*plain_step(step).parameters, *moments):
            if id(tensor) not in homes:
                homes[id(tensor)] = torch.zeros(tensor.shape)
            homes[id(tensor)].copy_(tensor.detach())

    call_before_update(snapshot)


def emptied_cache() -> None:
    """Call torch.cuda.empty_cache() before each micro-step."""
    call_before(Step, "forward", lambda *_: empty_cache())


def empty_cache() -> None:
    if torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.empty_cache()


def gradient_histograms() -> None:
    """Copy a histogram of each parameter's gradient to the host."""

    def watch(step: Step | GraphedStep, _: float) -> None:
        for parameter in plain_step(step).parameters:
            if parameter.grad is not None:
                torch.histc(parameter.grad, 64).tolist()

    call_before_update(watch)


def attention_head_by_head() -> None:
    """Attention as a loop over the heads."""

    def forward(layer: CausalSelfAttention, x: Tensor, _: Tensor | None = None) -> Tensor:
        q, k, v = layer.c_attn(x).split(x.size(-1), dim=2)
        size, heads = x.size(-1) // layer.n_head, []
        dropout = layer.dropout if layer.training else 0.0
        for head in zip(q.split(size, -1), k.split(size, -1), v.split(size, -1), strict=True):
            q_one, k_one, v_one = (part.unsqueeze(1) for part in head)  # (B, 1, T, D)
            heads.append(attend(q_one, k_one, v_one, layer.attention, dropout))
        y: Tensor = layer.resid_dropout(layer.c_proj(torch.cat(heads, dim=-1).squeeze(1)))
        return y

    replace_method(CausalSelfAttention, "forward", forward)


def norms_and_dropout_by_hand() -> None:
    """Layer norm and dropout written out in float32, a kernel for each operator."""

    def norm(layer: LayerNorm, x: Tensor) -> Tensor:
        centred = x.float() - x.float().mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight

    def drop(layer: nn.Dropout, x: Tensor) -> Tensor:
        if not layer.training:
            return x
        mask = (torch.rand_like(x, dtype=torch.float32) >= layer.p).float()
        return x * mask / (1 - layer.p)

    replace_method(LayerNorm, "forward", norm)
    replace_method(nn.Dropout, "forward", drop)


def looped_adamw() -> None:
    """AdamW that updates one parameter after the other."""

    def loop(step: Step) -> None:
        for group in step.optimizer.param_groups:
            group.update(fused=False, foreach=False)
        step.optimizer.found_inf = None  # type: ignore[assignment]  # of the fused one alone

    # not sooner: the step at learning rate 0 that makes the moments is 0 / 0 where AdamW is
    # capturable and not fused, and leaves weights that are no numbers
    call_before(Step, "clip_and_step", loop)


SECOND = {
    "reencoded_text": Plant("data", GRAPHS, reencoded_text),
    "ranks_of_targets": Plant("cpu", EAGER, ranks_of_targets),
    "snapshot_in_memory": Plant("copies", GRAPHS, snapshot_in_memory),
    "emptied_cache": Plant("allocation", f"{EAGER} batch_size=128", emptied_cache),
    "gradient_histograms": Plant("synchronization", GRAPHS, gradient_histograms),
    "tiny_micro_batches": Plant(
        "launch",
        f"{EAGER} batch_size=8 gradient_accumulation_steps=8",
        without=f"{EAGER} batch_size=64",
    ),
    "attention_head_by_head": Plant(
        "launch", f"{EAGER} n_head=12 batch_size=16", attention_head_by_head
    ),
    "float32_products": Plant(
        "gpu_compute", f"{FLOATS} dtype=float32", without=f"{FLOATS} dtype=bfloat16"
    ),
    "norms_and_dropout_by_hand": Plant(
        "gpu_memory", f"{EAGER} batch_size=256", norms_and_dropout_by_hand
    ),
    "looped_adamw_in_graphs": Plant(
        "gpu_latency", f"{GRAPHS} n_layer=12 batch_size=2", looped_adamw
    ),
}
