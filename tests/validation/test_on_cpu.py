"""validation.on_cpu, without a program: its tables, and how it grades."""

import re

import pytest

from profiling.shared.causes import VERDICT
from validation.framework_programs.on_cpu.series import SERIES
from validation.framework_programs.program import Program
from validation.on_cpu import OnCpuConfig, grade_of, main

PROGRAM = Program("on_cpu.host", "writes", "logging", "cpu", words="file|disk")


def test_the_table_has_classes_that_exist_and_a_control_in_each_series():
    for programs in SERIES.values():
        assert any(program.control for program in programs)
        for program in programs:
            assert {program.planted, *program.debatable.split(",")} - {""} <= set(VERDICT)
            re.compile(program.words), re.compile(program.advice)


@pytest.mark.parametrize(
    ("verdict", "evidence", "grade"),
    [
        ("logging", ["A file is written."], "right"),
        ("logging", ["Something is slow."], "vague"),
        ("cpu", ["It waits for a disk."], "debatable"),
        ("cpu", ["It waits."], "wrong"),
        ("data", ["It waits for a disk."], "wrong"),
    ],
)
def test_a_class_is_right_with_the_words_that_were_expected(verdict, evidence, grade):
    assert grade_of(verdict, evidence, PROGRAM) == grade


def test_a_series_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(ValueError, match="series=5: one of 1, 2, 3, 4"):
        main(OnCpuConfig(series=5, out=str(tmp_path)))
