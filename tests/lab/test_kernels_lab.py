"""Our kernels beside PyTorch's: right and wrong results, and what a CPU lacks."""

import json
from dataclasses import replace

import pytest
import torch

from profiling.lab.kernel_timing import relative_error
from profiling.lab.kernel_work import Sizes, operations
from profiling.verbs import kernels
from tests.helpers.kernel_programs import LONG_DEVICES, needs_triton, run

SMALL = Sizes(tokens=5, width=16, vocabulary=9, dropout=0.0)
CPU = torch.device("cpu")

PROGRAM = """
import sys
import torch
from profiling.lab.kernel_work import Sizes, operations
from profiling.lab.kernel_timing import relative_error

for operation in operations(Sizes(5, 16, 9, 0.0), torch.float32, torch.device(sys.argv[1])):
    error = relative_error(operation, operation.ours)
    assert error < 1e-5, (operation.name, error)
print("right")
"""


@needs_triton
@pytest.mark.parametrize("device", LONG_DEVICES)
def test_ours_are_right(device):
    run(PROGRAM, device)


def test_wrong_is_told_from_right():
    for operation in operations(SMALL, torch.float32, CPU):
        assert relative_error(operation, operation.plain) < 1e-5
        doubled = replace(operation, ours=lambda *x, plain=operation.plain: double(*plain(*x)))
        assert relative_error(doubled, doubled.ours) == pytest.approx(1, rel=1e-4)


def double(*outputs):
    return tuple(2 * output for output in outputs)


def test_traffic_counts_each_tensor_once():
    N, C, V = 5, 16, 9
    embedding, norm, gelu, loss = operations(SMALL, torch.bfloat16, CPU)
    tables = (V + 1) * C * 4  # five tokens are five sequences of one place
    assert embedding.forward_bytes == N * 8 + tables + N * C * 6
    assert embedding.backward_bytes == N * 8 + 2 * tables + N * C * 6
    assert (norm.forward_bytes, norm.backward_bytes) == (N * C * 12, N * C * 16)
    assert (gelu.forward_bytes, gelu.backward_bytes) == (N * C * 16, N * C * 24)
    ends = (N + V) * C * 2
    assert (loss.forward_bytes, loss.backward_bytes) == (ends + 4 * N * V, 2 * ends + 4 * N * V)


@pytest.mark.parametrize("dropout", ("0", "0.5"))
def test_the_command_measures_what_it_can_and_says_the_rest(dropout, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("profiling.lab.kernel_timing.WAYS", ("eager", "fused"))  # no compiler
    file = tmp_path / "k.json"
    words = f"--device cpu --tokens 8 --width 16 --max-s 0.01 --dropout {dropout} --json {file}"
    assert kernels.main(words.split()) == 0
    printed, said = capsys.readouterr()
    assert said == "", "no terminal shows progress"
    assert "GELU" in printed and "runs only on CUDA" in printed
    made = json.loads(file.read_text("utf-8"))
    assert (made["tokens"], made["width"], made["dtype"]) == (8, 16, "float32")
    assert len(made["rows"]) == 12
    for row in made["rows"]:
        if row["way"] == "fused":
            assert row["missing"] == "runs only on CUDA" and row["median_ms"] is None
        else:
            assert row["gbps"] == pytest.approx(row["bytes"] / row["median_ms"] / 1e6)
            assert (row["relative_error"] is None) == (dropout != "0")
