"""Whether a run fits into memory: said before the first allocation where it cannot, else after one.

Called by train.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from configs.data import DataConfig
from configs.model import ModelConfig
from data.sequences import host_bytes

WEIGHT_BYTES = 4  # float32
PARAMETER_BYTES = 4 * WEIGHT_BYTES  # the weight, its gradient, AdamW's two moments
BLOCK_BYTES = 30_000  # measured: the Python objects of a block, on the host
NO_MEMORY = "can't allocate memory"  # of PyTorch's CPU allocator, a RuntimeError


def check_model_fits(config: ModelConfig, device: torch.device, shards: int = 1) -> None:
    """Refuses a model that the memory of `device`, or of this machine, could not hold if empty.

    `shards` ranks share it, but each makes all weights at the start. Vocabulary, activations and
    all else are left out: what passes may still not fit. ValueError.
    """
    parameters = config.n_layer * 12 * config.n_embd**2 + config.block_size * config.n_embd
    masks = config.n_layer * config.block_size**2 if config.attention == "slow" else 0
    needed = {"this machine": config.n_layer * BLOCK_BYTES}
    place = "this machine" if device.type != "cuda" else str(device)
    parameter_bytes = max(PARAMETER_BYTES // shards, WEIGHT_BYTES)
    needed[place] = needed.get(place, 0) + parameters * parameter_bytes + masks
    for where, needed_bytes in needed.items():
        here = host_bytes()
        if where == str(device):
            here = torch.cuda.get_device_properties(device).total_memory
        if needed_bytes > here:
            raise ValueError(
                f"n_layer={config.n_layer}, n_embd={config.n_embd}, block_size={config.block_size}"
                f": this model and its optimizer take {needed_bytes / 2**30:,.0f} GiB or more, "
                f"{where} has {here / 2**30:,.0f}; lower them"
            )


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
