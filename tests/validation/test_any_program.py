"""The output of bare and hooked runs is compared without what the machine says of itself."""

from validation.any_program import Program, Run, compared, print_row

PRINTED = """step 00119/00120 | loss: {} | lrm: 0.06 | dt: {}ms | tok/sec: 1,024 | bf16_mfu: 0.1
Peak memory usage: {}MiB
"""
PROGRAM = Program("nanochat", [])


def run(kind: str, *printed: float) -> Run:
    output = compared(PRINTED.format(*printed))
    return Run("nanochat", kind, 0, output, 1.0, None if kind == "bare" else 119)


def test_times_and_the_peak_of_a_run_that_compiles_are_no_output_but_a_loss_is(capsys):
    bare = [run("bare", 6.0532, 11.5, 121.23), run("bare", 6.0532, 11.4, 74.49)]
    assert print_row(PROGRAM, [*bare, run("none", 6.0532, 18.1, 74.49)])
    assert "| 1 of 1 |" in capsys.readouterr().out
    assert not print_row(PROGRAM, [*bare, run("none", 6.0531, 18.1, 74.49)])
    assert "| 0 of 1 |" in capsys.readouterr().out
