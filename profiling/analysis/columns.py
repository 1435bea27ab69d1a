"""Questions to long columns that repeat few values. Used by most modules of profiling.analysis."""

from collections.abc import Callable

import numpy as np


def distinct(column: np.ndarray) -> np.ndarray:
    """The sorted distinct values of a column that has long runs of equal ones."""
    if not len(column):
        return column
    return np.unique(column[np.concatenate(([True], column[1:] != column[:-1]))])


def used(name: np.ndarray) -> list[int]:
    """The indices of names that occur in the column, ascending."""
    return np.flatnonzero(np.bincount(name)).tolist()


def called(names: list[str], name: np.ndarray, wanted: Callable[[str], object]) -> np.ndarray:
    """Of which rows of the column of indices `name` the name is wanted: asked once a name."""
    is_wanted = np.zeros(len(names) + 1, bool)
    is_wanted[[row for row in used(name) if wanted(names[row])]] = True
    return is_wanted[name]
