"""The square in six ways: right and wrong results, and messages about what a machine lacks."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from cli.errors import user_errors
from profiling.lab import square
from profiling.lab.square import EAGER, check, matrix, measure_variants, variant
from profiling.verbs import square as square_command
from tests.paths import PROJECT

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
DTYPES = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("mebibytes", (1, 3, 16))
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_matrix_has_the_size_that_was_asked_for(mebibytes, dtype):
    a = matrix(mebibytes, dtype, CPU)
    assert a.numel() * a.element_size() == mebibytes * 2**20
    assert a.size(1) <= a.size(0) <= 8 * a.size(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EAGER)
def test_eager_pytorch_is_exact(name, dtype):
    assert check(EAGER[name], matrix(1, dtype, CPU)) == "exact"


def only_a_block(a):
    """Square as a kernel that was given one block of 256 for every row, whatever its width."""
    out = torch.zeros_like(a)
    out[:, :256] = a[:, :256] ** 2
    return out


@pytest.mark.parametrize(
    "wrong",
    (
        only_a_block,
        lambda a: a * 1.01 * a,
        lambda a: a.abs(),
        lambda a: torch.full_like(a, float("nan")),
        lambda a: (a * a).double(),
        lambda a: (a * a)[:, :-1],
    ),
)
def test_a_wrong_result_is_refused(wrong):
    with pytest.raises(ValueError, match="WRONG"):
        check(wrong, matrix(1, "float32", CPU))


def test_another_rounding_is_told_from_an_exact_result():
    def truncated(a):
        rounded = a * a
        above = rounded.double() > a.double() ** 2
        return torch.where(above, torch.nextafter(rounded, torch.zeros(())), rounded)

    assert check(truncated, matrix(1, "float32", CPU)).startswith("within ")


def test_rows_give_bandwidth_against_the_copy_and_what_is_missing(monkeypatch):
    monkeypatch.setattr(square, "VARIANTS", ("torch.square(a)", "Triton", "CUDA C++"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    said: list[str] = []
    copy, eager, triton, cuda = measure_variants(matrix(1, "float32", CPU), 0.02, said.append)
    assert said == [f"{name}, 1 MiB" for name in ("b.copy_(a)", *square.VARIANTS)]
    assert copy.percent_of_copy == 100 and copy.bytes == 2**20
    assert eager.result == "exact"
    assert eager.gbps == pytest.approx(2 * 2**20 / eager.median_ms / 1e6)
    ratio = copy.median_ms / eager.median_ms
    assert eager.percent_of_copy == pytest.approx(100 * ratio)
    assert triton.median_ms is None and "needs a CUDA GPU" in triton.missing
    if not torch.cuda.is_available():
        assert cuda.missing == "needs a CUDA GPU"


@pytest.mark.slow
def test_the_command_prints_and_writes_and_a_wrong_variant_is_exit_code_1(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(square, "VARIANTS", ("a * a", "a ** 2", "CUDA C++"))
    file = tmp_path / "s.json"
    words = ["--device=cpu", "--mib=1,2", "--max-s=0.01", "--json", str(file)]
    assert square_command.main([*words, "--profiler"]) == 0
    printed = capsys.readouterr().out
    for word in ("1 MiB", "2 MiB", "a ** 2", "exact", "aten::mul", "of the copy"):
        assert word in printed
    rows = json.loads(file.read_text("utf-8"))["rows"]
    assert [row["bytes"] for row in rows] == [2**20] * 4 + [2**21] * 4
    assert "gbps" in rows[1] and (torch.cuda.is_available() or "gbps" not in rows[3])
    monkeypatch.setitem(square.EAGER, "a * a", lambda a: a + a)
    assert square_command.main(words) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags, said",
    (
        ("--mib 0", "--mib: 0"),
        ("--mib 1,a", "--mib: 1,a"),
        ("--dtype int8", "--dtype: invalid choice: 'int8'"),
        ("--device mps", "--device mps"),
        ("--max-s -1", "--max-s: -1"),
        ("--json nowhere/s.json", "the folder nowhere does not exist"),
        ("extra", "extra"),
    ),
)
def test_a_bad_flag_is_one_line(flags, said, capsys):
    with pytest.raises(SystemExit) as end, user_errors():
        square_command.main(flags.split())
    error = capsys.readouterr().err
    assert end.value.code == 2 and said in error and error.count("\n") == 1


# rows narrower, as wide as, and wider than a block, and a block and a bit; also rows apart
INTERPRETED = """
import torch
from profiling.lab.square_triton import BLOCK, triton_square

for dtype in (torch.float32, torch.float16):
    for width in (1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5):
        a = torch.randn(3, width, dtype=dtype)
        assert torch.equal(triton_square(a), torch.square(a)), (dtype, width)
apart = torch.randn(4, 2 * BLOCK)[:, : BLOCK + 3]
assert torch.equal(triton_square(apart), torch.square(apart))
assert triton_square(torch.empty(0, 5)).shape == (0, 5)
halves = torch.randn(2, BLOCK + 9, dtype=torch.bfloat16)
torch.testing.assert_close(triton_square(halves), torch.square(halves), rtol=2**-7, atol=0)
for refused in (torch.randn(4), torch.randn(4, 4).T, torch.ones(2, 2, dtype=torch.int32)):
    try:
        triton_square(refused)
    except ValueError:
        continue
    raise AssertionError(refused)
print("all right")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_the_triton_kernel_is_right_for_any_width():
    """The kernel runs in a process of its own: triton reads TRITON_INTERPRET once."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", INTERPRETED]
    done = subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout == "all right\n", done.stderr


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_triton_and_torch_compile_on_a_gpu(dtype):
    pytest.importorskip("triton")
    for shape in ((5, 1), (3, 1000), (2, 100_003)):
        a = torch.randn(shape, device=CUDA, dtype=getattr(torch, dtype))
        assert check(variant("Triton", CUDA), a) == "exact"
        assert check(variant("torch.compile", CUDA), a) == "exact"


@pytest.fixture(scope="module")
def cuda_square():
    try:
        return variant("CUDA C++", CUDA)
    except ValueError as error:
        if not str(error).startswith("needs"):
            raise
        pytest.skip(str(error))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", (*DTYPES, "float64"))
def test_cuda_cpp_on_a_gpu(cuda_square, dtype):
    for count in (1, 255, 257, 65535 * 256 + 1):
        a = torch.randn(count, device=CUDA).to(getattr(torch, dtype))
        assert torch.equal(cuda_square(a), torch.square(a))
    assert cuda_square(torch.empty(0, device=CUDA)).shape == (0,)


@pytest.mark.gpu
@needs_gpu
def test_cuda_cpp_refuses_what_it_cannot(cuda_square):
    for wrong, said in (
        (torch.randn(4), "CUDA tensor"),
        (torch.randn(4, 6, device=CUDA).T, "contiguous"),
        (torch.ones(4, dtype=torch.int32, device=CUDA), "floating point"),
    ):
        with pytest.raises(ValueError, match=said):
            cuda_square(wrong)


@pytest.mark.gpu
@needs_gpu
def test_cuda_cpp_runs_on_the_current_stream(cuda_square):
    stream = torch.cuda.Stream()
    a = torch.zeros(2**20, device=CUDA)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.fill_(3.0)
        found = cuda_square(a)  # on another stream it would square the zeros
    stream.synchronize()
    assert torch.equal(found, torch.full_like(a, 9.0))
