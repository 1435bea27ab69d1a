"""A training that is timed from outside: its processes write bytecode, its lines have times."""

from benchmarks.timed_training import time_training

PROGRAM = """
import helper
for number in range(0, 30, 10):
    print(f"iter {number}: loss 4.1, time 5.0ms")
    import time; time.sleep(0.01)
"""


def test_imports_are_compiled_once_whatever_the_environment_says(tmp_path):
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "program.py").write_text(PROGRAM)
    environ = {"PYTHONDONTWRITEBYTECODE": "1"}
    with open(tmp_path / "log", "wb") as log:
        timed = time_training(["program.py"], tmp_path, environ, log, "a", 0)
    assert list((tmp_path / "__pycache__").glob("helper.*.pyc"))
    assert 0.9 < timed.step_ms < timed.wall_s * 1e3
