"""The verb whatif: printed and written results, exit codes, and mistakes."""

import json

import pytest

from cli.errors import user_errors
from profiling.verbs import whatif
from tests.paths import CAPTURES

EAGER = str(CAPTURES / "flash_eager.sqlite.gz")
SLOW = str(CAPTURES / "slow_eager.sqlite.gz")
COMPILED = str(CAPTURES / "flash_compile.sqlite.gz")
TRACE = [
    str(CAPTURES / "flash_eager.trace.json.gz"),
    "--manifest",
    str(CAPTURES / "flash_eager.trace.window-1.json"),
]


def test_predictions_what_they_leave_and_what_comes_next(capsys):
    assert whatif.main([*TRACE, "--graphs", "--no", "copies", "data"]) == 0
    said = capsys.readouterr().out
    words = " ".join(said.split())
    assert "--graphs up to 0.429 6 % 6.99 6.50 to 7.42 the GPU" in words
    assert "--no copies nothing" in words and "--no data nothing" in words
    assert "ends 0.00 % off; round and round a step is 0.2 % off" in words
    assert "7.42 ms per step, measured around the window" in words
    assert "--graphs: kernels as they are; batches, copies and stalls of the host" in words
    assert "attention=flash compile=false cuda_graphs=false,true # measures --graphs" in words
    assert said.splitlines()[-1].startswith("Predicted: --graphs makes a step up to 0.429 ms")
    assert "at least -" not in said


def test_all_outputs(tmp_path, capsys):
    files = {name: tmp_path / f"a.{ending}" for name, ending in KINDS}
    flags = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert whatif.main([EAGER, *flags]) == 0
    assert "written:" in capsys.readouterr().out
    found = json.loads(files["json"].read_text())
    assert found["schema_version"] == 1 and found["free"]["source"] == "estimated"
    changes = [row["change"] for row in found["predictions"]]
    assert changes == ["--no sync", "--graphs"]
    assert "| `--graphs` | up to " in files["markdown"].read_text()
    assert "--graphs" in files["html"].read_text()


KINDS = (("json", "json"), ("markdown", "md"), ("html", "html"))


def test_nothing_that_can_be_told(capsys):
    assert whatif.main([SLOW, "--scale", "gemm=0.9", "--scale", "gemm=0.9", "--together"]) == 3
    assert "Cannot tell whether any of these" in capsys.readouterr().out
    assert whatif.main([SLOW, "--scale", "gemm=0.9", "--graphs"]) == 0
    assert whatif.main([EAGER, "--no", "copies"]) == 0
    assert "None of these makes the step shorter" in capsys.readouterr().out
    assert whatif.main([str(CAPTURES / "slow_compile.sqlite.gz")]) == 0  # nothing to list
    said = capsys.readouterr().out
    assert "None of the changes that can be replayed makes" in said
    assert "Predicted steps" not in said and said.count("The replay\n") == 1


def test_a_step_that_is_given(capsys):
    assert whatif.main([EAGER, "--free", "12.5", "--without", ".*optimizer.*", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["free"]["ms"] == 12.5 and found["free"]["source"] == "given"
    assert found["predictions"][0]["change"] == "--without '.*optimizer.*'"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        ([EAGER, "--no", "faults"], "--no: invalid choice: 'faults'"),
        ([EAGER, "--scale", "gemm"], "gemm: give FAMILY=FACTOR, such as gemm=0.8"),
        ([EAGER, "--scale", "gemm=fast"], "gemm=fast: fast is no number"),
        ([EAGER, "--scale", "gemm=-1"], "--scale: -1: must be 0 to 1000"),
        ([EAGER, "--scale", "gem=1"], "--scale gem: the steps have no such kernels; they have"),
        ([EAGER, "--without", "("], "(: no regular expression"),
        ([EAGER, "--without", "a{99999999999999}"], "the repetition number is too large"),
        ([EAGER, "--without", "(([a-z]*)*)*!"], "(([a-z]*)*)*!: matching took over 0.1 s"),
        ([EAGER, "--without", "nothing"], "--without nothing: no operator or range"),
        ([EAGER, "--swap", "attention=none"], "attention=none: give attention=NAME, of slow"),
        ([EAGER, "--lab", EAGER], "--lab: goes with --swap"),
        ([EAGER, "--swap", "attention=slow", "--lab", EAGER], "is damaged"),
        ([EAGER, "--batch", "128"], "--batch 128: no kernel was measured at another batch"),
        ([EAGER, "--free", "0"], "--free: 0: must be"),
        ([EAGER, "--step", "none"], "step=none: no range has this name"),
        ([COMPILED, "--graphs"], "--graphs: flash_compile.sqlite.gz already runs in CUDA graphs"),
        ([str(CAPTURES / "ranks")], "it has captures of several ranks"),
        ([EAGER, "--json", EAGER], "the name must end in .json"),
    ],
)
def test_mistakes_are_told_in_one_line(words, why, capsys, monkeypatch):
    monkeypatch.setattr(whatif, "MATCHING_S", 0.1)
    with pytest.raises(SystemExit) as ended, user_errors():
        whatif.main(words)
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and len(said) == 1 and why in said[0], said
