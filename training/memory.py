"""Whether a run fits into memory: said before the first allocation where it cannot, else after one.

Called by train.py.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from configs.data import DataConfig
from configs.model import ModelConfig
from configs.schema import Config
from data.sequences import host_bytes

log = logging.getLogger(__name__)

HERE = "this machine"
MODEL_KEYS = ("n_layer", "n_embd", "block_size")
WEIGHT_BYTES = 4  # float32
PARAMETER_BYTES = 4 * WEIGHT_BYTES  # the weight, its gradient, AdamW's two moments
BLOCK_BYTES = 30_000  # measured: the Python objects of a block, on the host
BLOCK_S, MANY_BLOCKS = 0.0008, 3000  # measured: to make one; from so many on the wait is noticed
# numbers that backward needs of a block for each one of its input, whatever is computed again:
# queries, keys and values, what attention made of them, the four of the MLP before its activation
KEPT_OF_A_BLOCK = 8
NO_MEMORY = "can't allocate memory"  # of PyTorch's CPU allocator, a RuntimeError


def check_model_fits(config: Config, device: torch.device, shards: int = 1) -> None:
    """Refuses a model, or its batch, that the memory of `device` or of this machine cannot hold.

    `shards` ranks share the model, but each makes all weights at the start. Vocabulary and all that
    is smaller are left out: what passes may still not fit. Raises ValueError naming the keys.
    """
    place = HERE if device.type != "cuda" else str(device)
    needed = {HERE: config.n_layer * BLOCK_BYTES}
    needed[place] = needed.get(place, 0) + model_bytes(config, shards)
    refuse_beyond(needed, "this model and its optimizer", config, MODEL_KEYS, device)
    needed[place] += activation_bytes(config)
    what = "this model, its optimizer and what backward needs of a batch"
    refuse_beyond(needed, what, config, ("batch_size", *MODEL_KEYS), device)


def model_bytes(config: ModelConfig, shards: int) -> int:
    """Weights, their gradients and AdamW's moments of one rank, without the vocabulary's."""
    parameters = config.n_layer * 12 * config.n_embd**2 + config.block_size * config.n_embd
    masks = config.n_layer * config.block_size**2 if config.attention == "slow" else 0
    return parameters * max(PARAMETER_BYTES // shards, WEIGHT_BYTES) + masks


def activation_bytes(config: Config) -> int:
    """What forward of one micro-batch has to keep for backward, at least; 0 without a backward."""
    if config.eval_only:
        return 0
    number_bytes = 4 if config.dtype == "float32" else 2
    kept = 1 if config.activation_checkpointing == "full" else KEPT_OF_A_BLOCK
    tokens = config.batch_size * config.block_size
    return config.n_layer * tokens * config.n_embd * kept * number_bytes


def refuse_beyond(
    needed: dict[str, int], what: str, config: Config, keys: Sequence[str], device: torch.device
) -> None:
    """Raises ValueError naming the keys where a place has less than the bytes needed there."""
    for place, needed_bytes in needed.items():
        there = host_bytes()
        if place == str(device):
            there = torch.cuda.get_device_properties(device).total_memory
        if needed_bytes > there:
            named = ", ".join(f"{key}={getattr(config, key)}" for key in keys)
            raise ValueError(
                f"{named}: {what} take {needed_bytes / 2**30:,.0f} GiB or more, "
                f"{place} has {there / 2**30:,.0f}; lower them"
            )


def announce_many_blocks(config: ModelConfig) -> None:
    """Says why nothing else comes for a while."""
    if config.n_layer >= MANY_BLOCKS:
        seconds = config.n_layer * BLOCK_S
        log.info("n_layer=%d: making them takes %.0f s or more", config.n_layer, seconds)


@contextmanager
def explained_out_of_memory(config: DataConfig) -> Iterator[None]:
    """Turns an allocator's error into a ValueError that names the key to change."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        what = str(error).partition(" GPU ")[0]
        raise ValueError(
            f"batch_size={config.batch_size}: does not fit into the GPU's memory ({what}); take a "
            "smaller one with more gradient_accumulation_steps; profile=memory shows what fills it"
        ) from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and NO_MEMORY not in str(error):
            raise
        what = str(error).partition(f"{NO_MEMORY}: ")[2] or str(error)
        raise ValueError(
            f"batch_size={config.batch_size}: does not fit into this machine's memory "
            f"({what.partition('. Error')[0]}); take a smaller one with more "
            "gradient_accumulation_steps, or a smaller model: n_layer, n_embd, block_size"
        ) from error
