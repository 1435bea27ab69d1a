"""Programs of CuPy: a table of cells, and a stack of frames."""

import cupy

from validation.framework_programs.parts import Mark, repeat, size


def cupy_group_by_group(fault: bool, mark: Mark) -> None:
    """Standardises 256 groups of rows one by one; without the fault on an axis of their own.

    Each group is several kernels for 256 KB, which take longer to launch than to run.
    """
    groups, rows, width = size(256, 4), size(1024, 8), 64
    table = cupy.random.rand(groups * rows, width, dtype=cupy.float32)

    def standardised(part: cupy.ndarray, axis: int) -> cupy.ndarray:
        centred = part - part.mean(axis, keepdims=True)
        return centred / cupy.sqrt((centred * centred).mean(axis, keepdims=True) + 1e-6)

    def step() -> None:
        if fault:
            for begin in range(0, groups * rows, rows):
                part = table[begin : begin + rows]
                part[:] = standardised(part, 0)
        else:
            table[:] = standardised(table.reshape(groups, rows, width), 1).reshape(table.shape)

    repeat(step, mark)


def cupy_frames_control(fault: bool, mark: Mark) -> None:
    """Subtracts the mean of a stack of frames, and scales each pixel by how much it varies."""
    shape = (size(256, 4), size(1024, 16), size(1024, 16))
    frames = cupy.random.rand(*shape, dtype=cupy.float32)

    def step() -> None:
        centred = frames - frames.mean(0)
        varies = cupy.sqrt((centred * centred).mean(0) + 1e-6)
        cupy.clip(centred / varies, -3, 3).max(0)

    repeat(step, mark)
