"""Compiled code kept for the next start: its place, and that nothing of it is traced again."""

import logging
import os

import pytest
import torch

from kernels.fused_model import make_model
from training.step.compilation import compile_model, name_operators_briefly, set_cache_folder


@pytest.fixture
def cache_as_before(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ["TORCHINDUCTOR_CACHE_DIR"])


def test_the_key_is_the_place(cache_as_before, config, tmp_path):
    model = make_model(config(compile=False, compile_cache=str(tmp_path / "unused")), 13)
    assert compile_model(model, model.config) is model and not list(tmp_path.iterdir())
    set_cache_folder(str(tmp_path / "new" / "place"))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "new" / "place")
    assert (tmp_path / "new" / "place").is_dir()


def test_a_place_that_cannot_be_costs_no_run(cache_as_before, tmp_path, caplog):
    before = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        set_cache_folder(f"{tmp_path}/file")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == before
    (said,) = caplog.messages
    assert said.startswith(f"compile_cache={tmp_path}/file: ") and "compiles again" in said


class Deep:
    """Stands for what an operator is given behind many layers: its text would not end."""

    def __str__(self) -> str:
        raise AssertionError("it was written out")


def test_an_operator_is_named_without_what_leads_up_to_it():
    from torch._inductor import exc

    name_operators_briefly()
    for error in (exc.MissingOperatorWithoutDecomp, exc.LoweringException):
        assert error.operator_str("ours", [Deep()], {}) == "  target: ours"


@pytest.mark.slow
def test_a_block_whose_attention_is_pinned_is_not_traced_again(
    cache_as_before, config, tmp_path, monkeypatch
):
    """math and flash make graphs that differ in the name of the backend alone.

    Whether a graph is kept is decided by its forward part, so there is no other to compile. Nor
    is its C++, for which g++ takes seconds: kernels write nothing here.
    """
    from torch._dynamo.utils import counters
    from torch._inductor.async_compile import AsyncCompile

    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda *_: lambda *_: None)

    def cached(attention: str) -> tuple[int, int]:
        torch._dynamo.reset()
        counters.clear()
        tiny = config(
            attention=attention, compile=True, compile_scope="block", compile_cache=str(tmp_path)
        )
        x = torch.zeros(2, 32, dtype=torch.long)
        with torch.no_grad():
            compile_model(make_model(tiny, 13), tiny)(x, x)
        found = counters["aot_autograd"]
        return found["autograd_cache_hit"], found["autograd_cache_bypass"]

    assert cached("flash") == (0, 0)
    assert cached("flash") == (3, 0)  # both ends and a block
    assert cached("math") == (2, 0)  # the ends
