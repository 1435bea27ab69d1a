"""The hook samples Python's stack in a window of torch.profiler, for reports without stacks."""

import _profiling_attach.python_samples as python_samples
from _profiling_attach.python_samples import PythonSampler, function_name

from profiling.analysis.open_report import open_report
from tests.helpers.forked import HOOKED, Forked
from tests.helpers.hooked import hooked

# most of a step is in read_rows, which torch.profiler does not see
PROGRAM = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def read_rows():
    end_s = time.perf_counter() + 0.024
    while time.perf_counter() < end_s:
        pass
def rest():
    time.sleep(0.002)
for step in range(60):
    read_rows()
    rest()
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
"""


def report_of(tmp_path, **settings):
    folder, program = tmp_path / "run", tmp_path / "mine.py"
    program.write_text(PROGRAM)
    environ = hooked(folder, kind="torch", start=10, steps=40, **settings)
    ended = Forked(["-c", HOOKED, str(program)], environ, folder=tmp_path)
    assert ended.communicate(timeout=90)[0] == ""
    return open_report(folder / "profile" / "window-1.trace.json.gz").report


def test_what_python_does_between_operators_is_named(tmp_path):
    report = report_of(tmp_path)
    assert report.bottleneck.verdict == "cpu"
    assert any(
        line.endswith(" ms are inside mine.py(6): read_rows.")
        for line in report.bottleneck.evidence
    ), report.bottleneck.evidence
    assert not any("--stack" in line for line in report.bottleneck.next)


def test_the_hooks_own_functions_are_left_out(monkeypatch):
    sampler = PythonSampler()
    sampler.take()
    assert [code.co_name for code in sampler.functions][
        -1
    ] == "test_the_hooks_own_functions_are_left_out"
    monkeypatch.setattr(python_samples, "OURS", __file__)
    alone = PythonSampler()
    alone.take()
    assert "test_the_hooks_own_functions_are_left_out" not in {c.co_name for c in alone.functions}


def test_a_name_is_without_the_folder_that_python_imports_from():
    code = test_a_name_is_without_the_folder_that_python_imports_from.__code__
    folder = __file__.removesuffix("tests/attach/test_python_samples.py")
    name = "test_a_name_is_without_the_folder_that_python_imports_from"
    assert function_name(code, [folder]).startswith("tests/attach/test_python_samples.py(")
    assert function_name(code, []) == f"{__file__}({code.co_firstlineno}): {name}"
