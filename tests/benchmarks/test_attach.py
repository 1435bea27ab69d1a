"""Cost of the hook in a program of others, as `python -m benchmarks attach` measures it."""

import pytest

from benchmarks.attach import AttachConfig, main, stubs_us

MOST_US = 30  # ten times the goal of 3: what a busy machine adds is not to fail this


@pytest.mark.slow
def test_the_hooks_own_calls_are_microseconds():
    bare, hooked = stubs_us()
    assert bare > 0 and hooked - bare < MOST_US


@pytest.mark.slow
def test_a_row_compares_bare_and_hooked_processes(capsys):
    main(AttachConfig(widths="8", steps=100, rounds=2, stub_rounds=1))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("the hook's own calls: ") and printed[-1].startswith("| 8 | ")
