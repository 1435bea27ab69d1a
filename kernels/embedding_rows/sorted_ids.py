"""Ids of rows in order, with everything that summing their rows needs to know of them."""

from typing import NamedTuple

import torch
from torch import Tensor

PART = 64  # rows of one id that are summed at once


class SortedIds(NamedTuple):
    """Ids of N rows in order, and the parts in which their rows are summed."""

    ids: Tensor  # (N), sorted
    order: Tensor  # (N), the row that each of the sorted ids belongs to
    starts: Tensor  # (N), the place in ids at which the id there begins
    parts: Tensor  # (N), places at which the parts of ids' rows begin, in order, filled up with N


def sort_ids(ids: Tensor) -> SortedIds:
    """Sort ids (N), which are less than 2^31, without a wait for the GPU."""
    sorted_ids, order = torch.sort(ids.int(), stable=True)  # half the passes of int64
    starts = torch.searchsorted(sorted_ids, sorted_ids)
    place = torch.arange(len(ids), device=ids.device)
    begins = (place - starts) % PART == 0
    part_or_end = torch.where(begins, place, len(ids))
    number = begins.cumsum(0) - 1
    parts = torch.full_like(order, len(ids)).scatter_reduce_(0, number, part_or_end, "amin")
    return SortedIds(sorted_ids, order, starts, parts)
