"""Refuses a run that cannot fit into memory, before its first allocation where that is known.

Otherwise it explains the allocator's error. Called by train.py.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod

import torch

from configs.data import DataConfig
from configs.model import ModelConfig
from configs.optimizers import OPTIMIZERS
from configs.schema import Config
from data.sequences import host_bytes
from profiling.shared.memory_sizes import kept_for_backward, state_of
from profiling.shared.model_description import (
    POSITIONS,
    Matrix,
    Shapes,
    blocks_of,
    matrices_of,
)
from training.machine.model_description import empty_model, parameters_of

log = logging.getLogger(__name__)

HERE = "this machine"
MODEL_KEYS = ("n_layer", "n_embd", "block_size")
BLOCK_BYTES = 30_000  # measured: the Python objects of a block, on the host
# measured: seconds to construct a block, and the number of blocks from which that is noticed
BLOCK_S, MANY_BLOCKS = 0.0008, 3000
NO_MEMORY = "can't allocate memory"  # in the RuntimeError of PyTorch's CPU allocator


def check_model_fits(config: Config, device: torch.device, shards: int = 1) -> None:
    """Raises ValueError, naming keys, if `device` or this machine cannot hold the model or a batch.

    `shards` ranks share the model, but each makes all weights at the start. The vocabulary and
    everything smaller are left out, so that a run that passes may still not fit.
    """
    place = HERE if device.type != "cuda" else str(device)
    parameters = parameters_of_one_block(config)
    needed = {HERE: config.n_layer * BLOCK_BYTES}
    needed[place] = needed.get(place, 0) + model_bytes(config, parameters, shards)
    refuse_beyond(needed, "this model and its optimizer", config, MODEL_KEYS, device)
    needed[place] += activation_bytes(config, parameters)
    what = "this model, its optimizer and the activations of a batch"
    refuse_beyond(needed, what, config, ("batch_size", *MODEL_KEYS), device)


def parameters_of_one_block(config: ModelConfig) -> Shapes:
    """Parameters of the model with one of its blocks and one id. Raises ValueError naming keys."""
    try:
        return parameters_of(empty_model(replace(config, n_layer=1), vocab_size=1))
    except ValueError as error:
        raise ValueError(f"{named(config, MODEL_KEYS)}: {error}; lower them") from error


def model_bytes(config: Config, one_block: Shapes, shards: int) -> int:
    """Bytes of one rank's matrices, with gradients and moments, without the vocabulary's."""
    matrices = config.n_layer * sum(map(prod, block_matrices(one_block)))
    positions = prod(one_block.get(POSITIONS, (0,)))
    moments = OPTIMIZERS[config.optimizer].moments_of(matrices, positions)
    state = state_of(matrices + positions, moments)
    masks = config.n_layer * config.block_size**2 if config.attention == "slow" else 0
    return max(state.shared(shards).total, state.weights) + masks


def activation_bytes(config: Config, one_block: Shapes) -> int:
    """Least bytes that forward of one micro-batch keeps for backward; 0 with eval_only."""
    if config.eval_only:
        return 0
    number_bytes = 4 if config.dtype == "float32" else 2
    tokens, recomputed = config.batch_size * config.block_size, config.activation_checkpointing
    products = block_matrices(one_block)
    return config.n_layer * kept_for_backward(
        products, config.n_embd, tokens, number_bytes, recomputed == "full"
    )


def block_matrices(one_block: Shapes) -> list[Matrix]:
    return [each for block in blocks_of(one_block) for each in matrices_of(block)]


def named(config: ModelConfig, keys: Sequence[str]) -> str:
    return ", ".join(f"{key}={getattr(config, key)}" for key in keys)


def refuse_beyond(
    needed: dict[str, int], what: str, config: Config, keys: Sequence[str], device: torch.device
) -> None:
    """Raises ValueError naming `keys` if a place has less memory than the bytes `needed` there."""
    for place, needed_bytes in needed.items():
        memory_bytes = host_bytes()
        if place == str(device):
            memory_bytes = torch.cuda.get_device_properties(device).total_memory
        if needed_bytes > memory_bytes:
            raise ValueError(
                f"{named(config, keys)}: {what} take {needed_bytes / 2**30:,.0f} GiB or more, but "
                f"{place} has {memory_bytes / 2**30:,.0f}; lower these keys"
            )


def announce_many_blocks(config: ModelConfig) -> None:
    """Logs how long construction takes, if the model has so many blocks that it is noticed."""
    if config.n_layer >= MANY_BLOCKS:
        seconds = config.n_layer * BLOCK_S
        log.info("n_layer=%d: creating the layers takes %.0f s or more", config.n_layer, seconds)


@contextmanager
def explain_out_of_memory(config: DataConfig) -> Iterator[None]:
    """Turns an allocator's error within the block into a ValueError that names the key to change.

    Other errors pass unchanged.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        what = str(error).partition(" GPU ")[0]
        raise ValueError(
            f"batch_size={config.batch_size}: does not fit into the GPU's memory ({what}); use a "
            "smaller batch_size with more gradient_accumulation_steps; profile=memory shows "
            "what fills the memory"
        ) from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and NO_MEMORY not in str(error):
            raise
        what = str(error).partition(f"{NO_MEMORY}: ")[2] or str(error)
        raise ValueError(
            f"batch_size={config.batch_size}: does not fit into this machine's memory "
            f"({what.partition('. Error')[0]}); use a smaller batch_size with more "
            "gradient_accumulation_steps, or a smaller model: n_layer, n_embd, block_size"
        ) from error
