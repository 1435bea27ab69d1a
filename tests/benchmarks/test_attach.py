"""Cost of the hook in a program of others, as `python -m benchmarks attach` measures it."""

import re
from functools import cache
from statistics import median

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
    monkeypatch.setattr(attach, "TURNS", 20)
    monkeypatch.setattr(attach, "COMPARED", 10)
    [pair] = attach.stubs_added_us(1, False)
    assert len(pair) == 2 and median(pair) < MOST_US
    monkeypatch.setattr(attach, "stubs_added_us", lambda pairs, gpu: [pair] * pairs)
    monkeypatch.setattr(attach, "model_us", cache(attach.model_us))  # a round is as the other
    attach.main(attach.AttachConfig(widths="8", steps=100, rounds=2, stub_rounds=2))
    machine, *stubs, own_calls, _, _, _, bare_row, hooked_row = capsys.readouterr().out.splitlines()
    assert re.search(r", load \d+\.\d on \d+ cores$", machine)
    assert stubs == [f"stubs: {spread(pair, 2)} us"] * 2
    added = spread([median(pair)], 2)
    assert own_calls == f"the hook's own calls: {added} us per step, of 2 pairs"
    bare, hooked = (attach.model_us(way, 8, 100, False) for way in ("bare", "hooked"))
    assert bare_row.startswith(f"| 8 | bare | {spread([bare], 1)} | ")
    assert hooked_row.startswith(f"| 8 | hooked | {spread([hooked], 1)} | ")
    assert min(bare, hooked) > 0


@pytest.mark.parametrize("widths", ["x", "0", "16,-2"])
def test_a_width_that_is_no_number_is_named(widths):
    with pytest.raises(ValueError, match=f"widths={widths}: give numbers"):
        attach.AttachConfig(widths=widths)
