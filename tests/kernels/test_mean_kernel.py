"""Triton kernel of the mean over the ranks' parts of a bucket."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import sys
import torch
from kernels.optimizers.mean_triton import ELEMENTS, mean_of_parts

torch.set_default_device(sys.argv[1])
for count, length in ((2, 8), (3, ELEMENTS), (4, ELEMENTS + 4), (8, 2 * ELEMENTS - 4)):
    parts, whole = torch.randn(count, length), torch.full((length + 4,), 7.0)
    mean_of_parts(parts, whole[:length])
    torch.testing.assert_close(whole[:length], parts.double().mean(0).float())
    assert (whole[length:] == 7).all()  # of another rank
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_the_mean_is_of_all_parts_and_written_nowhere_else(device):
    run(PROGRAM, device)
