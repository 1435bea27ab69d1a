"""Share of kernel time with a line: its table, and what it writes of an export of nsys."""

import sqlite3

import pytest
import torch

from validation.lines_share import LinesConfig, Run, backtrace_tables, chosen, print_table


def test_a_row_has_the_share_the_lines_and_what_stacks_cost(capsys):
    runs = [
        Run("eager", False, "a GPU", 10.0, 12.0, None, []),
        Run("eager", True, "a GPU", 10.0, 15.0, 96.04, ["model.py:7 3.1", "model.py:9 2"], 1.25),
        Run("timm", True, "a GPU", None, None, 40.0, []),
    ]
    print_table(["eager", "timm", "fused"], runs)
    printed = capsys.readouterr().out
    lines = "model.py:7 3.1; model.py:9 2"
    assert (
        f"| eager | 96.0 % | 1.2 % | {lines} | 10.000 | 12.000 (+20 %) | 15.000 (+50 %) |"
        in printed
    )
    assert "| timm | 40.0 % | – |  | – | – | – |" in printed and "below 95 %: timm" in printed


@pytest.mark.skipif(torch.cuda.is_available(), reason="what is refused without a GPU")
def test_what_cannot_run_is_refused_or_left_out(capsys):
    with pytest.raises(ValueError, match="needs a CUDA GPU"):
        chosen(LinesConfig())
    with pytest.raises(ValueError, match="programs=x: not one of eager"):
        chosen(LinesConfig(programs="x"))
    assert chosen(LinesConfig(programs="eager,fused,nanogpt", small=True)) == ["eager"]
    said = capsys.readouterr().err
    assert "fused is left out: it needs a GPU" in said and "give nanogpt=FOLDER" in said


def test_tables_with_backtraces_are_written_with_the_texts_of_their_numbers(tmp_path):
    export = tmp_path / "backtraces.sqlite"
    with sqlite3.connect(export) as database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE CUDA_CALLCHAINS (id INTEGER, symbol INTEGER, stackDepth INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER);
            INSERT INTO StringIds VALUES (7, 'forward'), (0, 'not meant');
            INSERT INTO CUDA_CALLCHAINS VALUES (1, 7, 0);
            """
        )
    told = backtrace_tables(export)
    assert told.startswith("tables: CUDA_CALLCHAINS 1, NVTX_EVENTS 0, StringIds 2\n")
    assert "CUDA_CALLCHAINS, columns id, symbol, stackDepth" in told
    assert (
        "  id=1, symbol=7 'forward', stackDepth=0\n" in told and "NVTX_EVENTS, columns" not in told
    )
