"""Cost of a profiler: measured on a CPU, and under a program that stands in for nsys."""

import sys

import pytest

from profiling.shared.profiler_costs import COSTS
from validation import profiler_cost
from validation.profiled_calls import OF_A_GPU, kinds
from validation.profiler_cost import SETTINGS, CostConfig, in_nsys, main


@pytest.mark.slow
@pytest.mark.skipif("launches" in kinds(), reason="the rows of a machine without a GPU")
def test_each_kind_of_call_has_a_row_for_each_setting(capsys):
    main(CostConfig(rounds=2, count=200))
    measured, table = capsys.readouterr().out.split("| in the table |")
    rows = [line.split(" | ")[:3] for line in measured.splitlines() if "torch.profiler" in line]
    assert rows == [["| torch.profiler", name, kind] for kind in kinds() for name in SETTINGS]
    assert not set(OF_A_GPU) & set(kinds())
    tools = tuple(f"| {cost.tool}" for cost in COSTS)
    assert sum(line.startswith(tools) for line in table.splitlines()) == len(COSTS)
    assert "gap between operators" in table


@pytest.mark.slow
def test_processes_with_nsys_and_without_take_turns(start, monkeypatch):
    begun = []

    def run(command: list[str]) -> None:
        own = command.index(sys.executable)
        begun.append(command[:own])
        process = start(command[own + 1 :])
        assert process.wait() == 0, process.communicate()

    monkeypatch.setattr(profiler_cost, "run_successfully", run)
    taken = in_nsys("nsys", CostConfig(rounds=2, count=100))
    assert [len(words) > 0 for words in begun] == [False, True, True, False]
    assert begun[1][:2] == ["nsys", "profile"]
    assert "--capture-range=cudaProfilerApi" in begun[1]
    assert set(taken) == set(kinds())
    for times in taken.values():
        assert {setting: len(us) for setting, us in times.items()} == {None: 2, "": 2}
        assert min(map(min, times.values())) > 0
