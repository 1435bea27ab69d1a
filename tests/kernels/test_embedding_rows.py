"""Triton kernel that adds rows to a table, against PyTorch's embedding in float64."""

import pytest

from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

pytestmark = needs_triton

PROGRAM = r"""
import sys
import torch
import kernels.embedding_rows.in_triton
from kernels.embedding_rows.sorted_ids import PART, sort_ids
from kernels.embedding_rows.in_triton import launch

torch.set_default_device(sys.argv[1])


def compare(N, C, V, stream=torch.float32, most=None):
    '''most: ids that occur, so that each of them has many rows.'''
    given, rows = torch.randint(most or V, (N,)), torch.randn(N, C).to(stream)
    by_id = sort_ids(given)
    table = torch.randn(V, C)
    exact = table.double()
    exact.index_add_(0, given, rows.double(), alpha=0.25)
    again = table.clone()
    launch(table, rows, by_id, 0.25)
    launch(again, rows, by_id, 0.25)
    torch.testing.assert_close(table.double(), exact, rtol=1e-5, atol=1e-5)
    assert torch.equal(table, again)


compare(40, 8, 20)
compare(1, 8, 20)
compare(33, 5, 7, torch.bfloat16)
assert PART == 64
compare(64, 8, 1)
compare(65, 8, 1)
compare(200, 500, 3)  # each of two parts, which begin where they may
compare(700, 500, 9, most=2)
compare(129, 1100, 50, most=1)
kernels.embedding_rows.in_triton.PROGRAMS = 3
compare(200, 8, 90)  # several parts for each program
if sys.argv[1] == "cuda":
    compare(49152, 768, 50257, torch.bfloat16)
    compare(49152, 768, 50257, torch.bfloat16, most=9)
print("right")
"""


@pytest.mark.parametrize("device", LONG_DEVICES)
def test_rows_of_each_id_are_added_in_order(device):
    run(PROGRAM, device)
