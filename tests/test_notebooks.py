"""notebooks/: committed without outputs, small, and each cell runs, here without a GPU."""

import re

import pytest

from profiling.shared.causes import VERDICT
from tests.paths import PROJECT

NOTEBOOK = PROJECT / "notebooks" / "first_capture.ipynb"
SMALL = "ITERATIONS, REPEATS, STEPS = 45, 2, 20"
# the programs of `run` and `ab` are forked; the trainings are started anew, as users do
FORKED = """
from profiling.launch import process
from profiling.launch.any_program import start
from tests.helpers.forked import FORKING

process.subprocess = start.subprocess = FORKING
"""
KEYS = ["n_layer=1", "n_head=2", "n_embd=16", "block_size=16", "batch_size=4"]


@pytest.fixture(scope="module")
def cells():
    """The notebook as read, its cells by their names."""
    pytest.importorskip("nbclient", reason="needs the extra dev: nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs the extra dev: nbclient and ipykernel")
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    return notebook, {cell.id: cell for cell in notebook.cells}


def test_it_is_small_and_has_no_outputs(cells):
    notebook, by_name = cells
    assert NOTEBOOK.stat().st_size < 20_000
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in codes)
    for link in re.findall(r"\]\(([^)]+)\)", "".join(cell.source for cell in notebook.cells)):
        assert (NOTEBOOK.parent / link).is_file(), link


@pytest.mark.slow
def test_every_cell_runs_without_a_gpu(cells, tmp_path, monkeypatch, project_data, text_file):
    from nbclient import NotebookClient

    notebook, by_name = cells
    assert by_name["parameters"].metadata.tags == ["parameters"]
    keys = [*KEYS, f"data_source={text_file}"]
    mine = f"\n{SMALL}\nKEYS, OUT = {keys}, {str(tmp_path / 'out')!r}"
    by_name["parameters"].source += mine
    by_name["run"].source = FORKED + by_name["run"].source
    by_name["own"].source = by_name["own"].source.replace("range(64)", "range(2)")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it a kernel loses what programs print
    place = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place).execute()
    printed = {
        name: "".join(output.get("text", "") for output in cell.get("outputs", []))
        for name, cell in by_name.items()
    }
    pages = {
        name: output.data["text/html"]
        for name, cell in by_name.items()
        for output in cell.get("outputs", [])
        if output.output_type == "display_data"
    }
    assert "attention=slow: slow ran" in printed["train"]
    # what limits such small steps depends on what else the machine does; both cells say the same
    sentence = printed["report"].rstrip().splitlines()[-1]
    figures, *advice = printed["figures"].rstrip().splitlines()
    verdict = VERDICT[re.search(r"verdict (\w+), advice:$", figures)[1]]
    assert sentence.startswith(f"Bound by {verdict.title}") and "has no GPU" in sentence
    assert advice
    assert "iteration  40  loss" in printed["loss"]
    assert re.search(r"(faster|slower|equal|cannot_tell): ratio ", printed["compare"])
    assert "299 steps; a step ends with AdamW.step()" in printed["run"]
    assert "4 processes as A B B A" in printed["ab"]
    assert pages.keys() == {"report", "compare", "ab"}
    assert all("<iframe title=" in page for page in pages.values())
