"""The tables of `python -m benchmarks first_report`; the measurement itself takes minutes."""

from benchmarks.first_report import CAPTURES, WAYS, Costs, size, table
from tests.paths import PROJECT


def test_each_way_is_a_column_and_what_it_lacks_is_a_dash():
    base = Costs({"`git clone`": 2.0, "`demo`": 1.5}, 3.0, 25_000_000, 100_000_000, 99_600_000)
    train = Costs({"`git clone`": 2.0, "`train`": 60.0}, 70.0, 25_000_000, 225_000_000, 2_000_000)
    rows = table({".": base, "'.[train]'": train})
    assert rows[0] == "| | `pip install .` | `pip install '.[train]'` |"
    assert "| `train`, s | - | 60.0 |" in rows
    assert "| **all without the network, s** | **3.5** | **62.0** |" in rows
    assert "| both on a link of 1 Mbit/s, s | 1,000 | 2,000 |" in rows
    assert rows[-1] == "| installed, MB | 100 | 2 |"


def test_its_commands_are_those_of_the_readme_and_its_captures_exist(tmp_path):
    readme = (PROJECT / "README.md").read_text("utf-8")
    for command in WAYS["-r requirements.txt"]:
        assert command in readme
    assert all(size(PROJECT / path) for path in CAPTURES.values())
