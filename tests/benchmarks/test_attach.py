"""Cost of the hook in a program of others, as `python -m benchmarks attach` measures it."""

from functools import cache

import pytest

from benchmarks import attach
from benchmarks.measuring import spread
from profiling.launch.any_program.start import VARIABLE
from tests.helpers.forked import HOOKED, Forked

MOST_US = 30  # ten times the goal of 3: what a busy machine adds is not to fail this


def run_forked(command: list[str], environ: dict[str, str]) -> str:
    """Stands for attach.run."""
    words = ["-c", HOOKED, *command[1:]] if VARIABLE in environ else command[1:]
    process = Forked(words, environ)
    printed, _ = process.communicate(timeout=90)
    assert process.returncode == 0, printed
    return printed


@pytest.mark.slow
def test_the_hooks_own_calls_are_microseconds_and_a_row_compares_processes(capsys, monkeypatch):
    monkeypatch.setattr(attach, "run", run_forked)
    monkeypatch.setattr(attach, "TURNS", 8)
    for name in ("stubs_added_us", "model_us"):  # each process runs once: a round is as the other
        monkeypatch.setattr(attach, name, cache(getattr(attach, name)))
    attach.main(attach.AttachConfig(widths="8", steps=100, rounds=2, stub_rounds=1))
    printed = capsys.readouterr().out.splitlines()
    added = attach.stubs_added_us(False)
    assert added < MOST_US
    assert printed[0] == f"stubs: {added:.2f} us"
    assert printed[1].startswith(f"the hook's own calls: {spread([added], 2)} us per step")
    bare, hooked = (attach.model_us(way, 8, 100, False) for way in ("bare", "hooked"))
    assert printed[-2].startswith(f"| 8 | bare | {spread([bare], 1)} | ")
    assert printed[-1].startswith(f"| 8 | hooked | {spread([hooked], 1)} | ")
    assert min(bare, hooked) > 0


@pytest.mark.parametrize("widths", ["x", "0", "16,-2"])
def test_a_width_that_is_no_number_is_named(widths):
    with pytest.raises(ValueError, match=f"widths={widths}: give numbers"):
        attach.AttachConfig(widths=widths)
