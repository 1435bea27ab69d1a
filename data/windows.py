"""Windows of `block_size` tokens cut out of a text, and the exact evaluation over all of them.

`data.batches` draws training windows with `gather` and `read`; `windows` is the evaluation's loop.
"""

from collections.abc import Iterator

import numpy as np
import torch

IGNORED = -1  # a target that cross_entropy(ignore_index=-1) does not count


def gather(
    tokens: torch.Tensor, starts: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """x, y (b, block_size) int64 for starts (b,), on the device of tokens (N,); no host sync."""
    # A view of every window there is: one indexing kernel, then one conversion each for x and y.
    cut = tokens.unfold(0, block_size + 1, 1).index_select(0, starts)
    return cut[:, :-1].long().contiguous(), cut[:, 1:].long().contiguous()


def read(tokens: np.ndarray, starts: np.ndarray, pair: torch.Tensor) -> None:
    """Fills pair (2, b, block_size), int64 on the host, with x and y for starts (b,)."""
    cut = tokens[starts[:, None] + np.arange(pair.shape[2] + 1)]
    x, y = pair.numpy()
    x[:], y[:] = cut[:, :-1], cut[:, 1:]


def count_windows(n_tokens: int, block_size: int) -> int:
    """Windows that together predict each of the `n_tokens - 1` next tokens once."""
    return -(-(n_tokens - 1) // block_size)


def cover(
    n_tokens: int, block_size: int, limit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and numbers of masked targets, both (windows,), of the windows that cover a text.

    The last window ends at the last token; the targets at its head that the window before it has
    already are masked. With `limit`, an evenly spaced sample of so many windows, always the same.
    """
    assert n_tokens > block_size
    count = count_windows(n_tokens, block_size)
    chosen = np.arange(count)
    if limit is not None and limit < count:
        chosen = np.arange(limit) * count // limit
    starts = np.minimum(chosen * block_size, n_tokens - 1 - block_size)
    return starts, chosen * block_size - starts


def windows(
    tokens: torch.Tensor | np.ndarray,
    block_size: int,
    batch_size: int,
    device: torch.device,
    rank: int = 0,
    world_size: int = 1,
    limit: int | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's batches x, y (batch_size, block_size) int64 on the device: each prediction once.

    `tokens` (N,), N > block_size: a tensor on the device, or an array that is read batch by batch.
    Targets not to be counted are -1: sum the losses over all batches and ranks and divide by the
    number of targets that are not. Batches are dealt to the ranks in turn: some ranks may have one
    more. The last batch is filled up with masked rows, so that only one shape is compiled.
    """
    starts, masked = cover(len(tokens), block_size, limit)
    spare = -len(starts) % batch_size
    starts = np.pad(starts, (0, spare)).reshape(-1, batch_size)[rank::world_size]
    masked = np.pad(masked, (0, spare), constant_values=block_size)
    masked = masked.reshape(-1, batch_size)[rank::world_size]
    if isinstance(tokens, torch.Tensor):
        yield from _resident_windows(tokens, starts, masked, block_size)
        return
    for batch_starts, batch_masked in zip(starts, masked, strict=True):
        pair = host_pair(batch_size, block_size, device)
        read(tokens, batch_starts, pair)
        targets = pair[1].numpy()
        targets[np.arange(block_size) < batch_masked[:, None]] = IGNORED
        x, y = pair.to(device, non_blocking=True)
        yield x, y


def _resident_windows(
    tokens: torch.Tensor, starts: np.ndarray, masked: np.ndarray, block_size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    plan = to_device(np.stack([starts, masked], axis=1), tokens.device)
    positions = torch.arange(block_size, device=tokens.device)
    for batch_starts, batch_masked in plan:
        x, y = gather(tokens, batch_starts, block_size)
        yield x, y.masked_fill_(positions < batch_masked[:, None], IGNORED)


def host_pair(batch_size: int, block_size: int, device: torch.device) -> torch.Tensor:
    """Room for x and y on the host (2, batch_size, block_size); pinned where they go to a GPU.

    PyTorch's allocator gives pinned memory out again only once the copies from it are done.
    """
    return torch.empty(
        (2, batch_size, block_size), dtype=torch.int64, pin_memory=device.type == "cuda"
    )


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy of the array on the device, without waiting for it."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
