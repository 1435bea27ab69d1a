"""Comparisons: buckets that add up, refusals that name their reason, and true wording."""

from dataclasses import replace

import msgspec
import pytest

from profiling.analysis.difference.comparability import config_differences, factor
from profiling.analysis.difference.compared import (
    CapturedStep,
    Compared,
    Environment,
    Git,
    compared_capture,
)
from profiling.analysis.difference.comparison import compare, stem
from profiling.analysis.difference.comparison_records import (
    Comparison,
    KernelChange,
    KernelOnOneSide,
    Pair,
)
from profiling.analysis.difference.sentence import PartChange, speed, telling_parts
from profiling.analysis.records import Finding
from profiling.analysis.runs.configuration import flatten
from profiling.shared.gpu_clock import GpuClock
from tests.helpers.reports import (
    CONFIG,
    ENVIRONMENT,
    flash,
    flash_report,
    side,
    slow,
    slow_report,
)


def deltas(comparison: Comparison) -> dict[str, float]:
    return {row.bucket: row.delta_ms for row in comparison.buckets}


def with_captured(side: Compared, **fields) -> Compared:
    return replace(side, captured=replace(side.captured, **fields))


def test_the_json_of_a_comparison_is_the_fixed_schema_and_reads_back():
    found = compare(slow(), flash())
    json = msgspec.to_builtins(found)
    assert list(json) == [
        *("schema_version", "baseline", "candidate", "step_ms", "free_step_ms", "verdict"),
        *("equal_within_percent", "cannot_tell", "ratio_bound", "size_unknown"),
        *("buckets", "families", "ranges", "kernels", "differs", "differences"),
        *("comparability", "sentence"),
    ]
    assert {"baseline", "candidate", "ratio", "ci95"} <= set(json["step_ms"])
    assert "unit" not in json["step_ms"] and found.step_ms.unit == "ms per step"
    assert set(json["kernels"]) == {"added", "removed", "changed"}
    assert found.differs == ["attention"] and found.comparability.comparable is True
    assert found.comparability.reasons == []
    assert msgspec.convert(json, Comparison) == found


def test_flash_is_faster_by_its_attention_and_the_sentence_says_so():
    found = compare(slow(), flash())
    low, high = found.step_ms.ci95
    assert found.verdict == "faster"
    assert low < found.step_ms.ratio < high < 0.8
    assert found.sentence == (
        "flash is 1.42x faster than slow (10.80 -> 7.61 ms per step): "
        "attention 4.10 -> 0.900 ms, everything else within noise"
    )


def test_the_buckets_add_up_to_the_difference_of_the_means():
    one, other = slow(), flash()
    found = compare(one, other)
    assert sum(deltas(found).values()) == pytest.approx(other.mean_ms - one.mean_ms, abs=1e-9)
    assert deltas(found)["compute"] == pytest.approx(-3.2)
    assert "unexplained" not in deltas(found)


def test_what_the_parts_leave_of_the_step_is_a_bucket_of_its_own():
    parts = flash().captured.gpu_parts
    other = with_captured(flash(), gpu_parts=parts | {"compute": parts["compute"] - 0.5})
    assert deltas(compare(slow(), other))["unexplained"] == pytest.approx(0.5)


def test_a_cause_that_is_in_no_table_is_told_all_the_same():
    """A capture of a newer version may have such a cause."""
    parts = flash().captured.gpu_parts | {"idle_paging": 4.0}
    other = with_captured(replace(flash(), mean_ms=flash().mean_ms + 4.0), gpu_parts=parts)
    found = compare(slow(), other)
    assert deltas(found)["idle_paging"] == 4.0 and "unexplained" not in deltas(found)
    assert "idle: paging 0 -> 4.00 ms" in found.sentence


def test_idle_time_without_its_causes_is_one_bucket():
    reports = [replace(report, idle=None) for report in (slow_report(), flash_report())]
    found = compare(*map(compared_capture, reports))
    assert list(deltas(found)) == ["compute", "communication", "copy", "idle"]


def test_without_gpu_activity_the_phases_of_the_host_are_the_buckets():
    nothing = {"breakdown": None, "idle": None, "families": [], "kernels": []}
    one, other = replace(slow_report(), **nothing), replace(flash_report(), **nothing)
    ranges = [other.ranges[0], replace(other.ranges[1], host_ms=1.3 * 20)]
    found = compare(compared_capture(one), compared_capture(replace(other, ranges=ranges)))
    assert deltas(found)["host_backward"] == pytest.approx(1.0)
    assert "host_other" in deltas(found)
    assert "backward on the host 0.300 -> 1.30 ms" in found.sentence
    assert found.families is None
    assert found.kernels.added == found.kernels.removed == []


def test_without_phases_either_there_are_no_buckets():
    one, other = (replace(each, captured=CapturedStep(20)) for each in (slow(), flash()))
    found = compare(one, other)
    assert found.buckets is None and found.ranges is None
    assert found.sentence == "flash is 1.42x faster than slow (10.80 -> 7.61 ms per step)"


def test_equal_captures_do_not_differ_in_either_direction():
    for one, other in ((slow(), slow()), (flash(), flash())):
        found = compare(one, other)
        assert found.verdict == "equal"
        name = found.baseline.name
        assert found.sentence.startswith(f"{name} again and {name} are equal within 2 %: 0.9")


def test_the_largest_parts_are_named_even_where_each_may_be_noise():
    changes = {"backward": 71.1, "forward": 56.7, "optimizer": 15.9, "data": 0.1}
    parts = [PartChange(name, 1.0, 1.0 + ms, noise_ms=100.0) for name, ms in changes.items()]
    assert telling_parts(parts, noise_ms=20.0) == parts[:2]
    assert telling_parts(parts, noise_ms=200.0) == []


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ("a/profile/window-1.json.gz", "b/profile/window-1.json.gz", ("a", "b")),
        ("a/profile/window-1.json", "a/profile/window-2.json", ("window-1", "window-2")),
        ("x/slow/trace.sqlite", "x/flash/trace.sqlite", ("slow", "flash")),
        ("runs/out-1", "runs/out-2", ("out-1", "out-2")),
        ("x/a.sqlite", "x/a.trace.json", ("a.sqlite", "a.trace.json")),
    ],
)
def test_sides_are_named_by_what_differs_in_their_paths(one, other, names):
    sides = [replace(slow(), path=path) for path in (one, other)]
    found = compare(*sides)
    assert (found.baseline.name, found.candidate.name) == names


def test_less_than_what_two_starts_differ_by_is_no_difference():
    """Steps of a quiet machine agree to a thousandth; another process would not."""
    one = side("a.sqlite", {"gemm": 10.0}, jitter=0.0001)
    other = side("b.sqlite", {"gemm": 10.05}, jitter=0.0001)
    found = compare(one, other)
    assert found.step_ms.ci95[0] > 1
    assert found.verdict == "equal"
    much = side("b.sqlite", {"gemm": 10.3}, jitter=0.0001)
    assert compare(one, much).verdict == "slower"


def test_a_part_that_went_and_one_that_came_count_from_and_to_nothing():
    one = side("eager.sqlite", {"gemm": 5.0, "softmax": 2.0, "dropout": 1.0})
    other = side("fused.sqlite", {"gemm": 5.0, "attention": 0.8})
    found = compare(one, other)
    rows = {row.family: row for row in found.families}
    assert (rows["softmax"].baseline_ms, rows["softmax"].candidate_ms) == (2.0, 0.0)
    assert rows["attention"].delta_ms == pytest.approx(0.8)
    assert "softmax 2.00 -> 0 ms" in found.sentence


def test_many_small_changes_are_not_called_noise():
    one = side("a.sqlite", {f"family{i}": 1.0 for i in range(10)})
    other = side("b.sqlite", {f"family{i}": 0.8 for i in range(10)})
    assert compare(one, other).sentence.endswith("everything else -1.20 ms together")


def test_saved_kernel_time_that_only_became_idle_is_told():
    one = side("slow.sqlite", {"gemm": 5.0, "attention": 4.0}, {"launch": 1.0})
    other = side("flash.sqlite", {"gemm": 5.0, "attention": 1.0}, {"launch": 4.5})
    found = compare(one, other)
    assert found.verdict == "slower"
    assert "idle: kernel launches 1.00 -> 4.50 ms" in found.sentence
    assert "attention 4.00 -> 1.00 ms" in found.sentence


def test_kernels_that_came_and_went_with_their_time_of_a_step():
    found = compare(slow(), flash()).kernels
    (removed,) = found.removed
    assert (removed.name, removed.family, removed.count) == ("attention_kernel", "attention", 6)
    assert removed.ms == pytest.approx(4.1)
    assert [row.name for row in found.added] == ["flash_fwd"]


def kernels(*rows: tuple[str, float, float]) -> tuple[KernelOnOneSide, ...]:
    """(name, launches a step, ms a step)"""
    return tuple(KernelOnOneSide(name, "elementwise", count, ms) for name, count, ms in rows)


def test_kernels_of_both_sides_that_changed_with_count_ms_and_percent():
    one = with_captured(slow(), kernels=kernels(("copy", 12, 2.0), ("gemm", 6, 5.0), ("a", 1, 1)))
    other = with_captured(
        flash(), kernels=kernels(("copy", 6, 0.5), ("gemm", 6, 5.04), ("a", 2, 1))
    )
    found = compare(one, other).kernels
    copy, a = found.changed  # gemm changed by less than a hundredth
    assert copy == KernelChange("copy", "elementwise", 12, 6, 2.0, 0.5, -1.5, -75.0)
    assert (a.name, a.delta_ms, a.candidate_count) == ("a", 0, 2)
    assert found.added == found.removed == []
    assert compare(one, one).kernels.changed == []


def test_kernels_of_triton_are_matched_without_their_number():
    one = kernels(("triton_poi_fused_add_1", 6, 1.0), ("triton_poi_fused_add_4", 6, 1.0))
    one += kernels(("triton_red_fused_sum_2", 1, 0.5), ("kernel_1", 1, 0.3))
    other = kernels(("triton_poi_fused_add_7", 12, 1.5), ("triton_red_fused_sum_2", 1, 0.2))
    other += kernels(("kernel_2", 1, 0.3), ("triton_per_fused_norm_3", 1, 0.1))
    found = compare(with_captured(slow(), kernels=one), with_captured(flash(), kernels=other))
    add, total = found.kernels.changed
    assert (add.name, add.baseline_count, add.candidate_count) == ("triton_poi_fused_add", 12, 12)
    assert add.percent == pytest.approx(-25)
    assert total.name == "triton_red_fused_sum_2"  # the same on both sides
    assert [row.name for row in found.kernels.removed] == ["kernel_1"]
    assert [row.name for row in found.kernels.added] == ["kernel_2", "triton_per_fused_norm_3"]


def test_phases_side_by_side():
    rows = {row.name: row for row in compare(slow(), flash()).ranges}
    assert rows["forward"].baseline_gpu_ms == pytest.approx(0.4 * 10.8)
    assert rows["forward"].delta_host_ms == 0
    phases = {"forward": flash().captured.phases["forward"]}
    found = compare(slow(), with_captured(flash(), phases=phases))
    rows = {row.name: row for row in found.ranges}
    assert rows["backward"].candidate_gpu_ms is None
    assert rows["backward"].delta_gpu_ms is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device": "A100"}, "GPU NVIDIA H200 against A100"),
        ({"kind": "kineto"}, "kind of capture nsys against torch.profiler"),
        ({"config": flash().config | {"batch_size": 32}}, "batch_size 64 against 32"),
        ({"config": flash().config | {"n_layer": 12}}, "n_layer 6 against 12"),
        ({"config": flash().config | {"dtype": "float32"}}, "dtype bfloat16 against float32"),
        (
            {"config": flash().config | {"residual_dtype": "bfloat16"}},
            "residual_dtype float32 against bfloat16",
        ),
        ({"environment": Environment({"torch": "2.6"})}, "torch 2.11"),
        ({"environment": Environment(cuda="12.4")}, "cuda 13.0 against 12.4"),
        ({"environment": Environment(cudnn=90100)}, "cudnn 91002 against 90100"),
    ],
)
def test_what_does_not_compare_is_refused_by_name(change, reason):
    found = compare(slow(), replace(flash(), **change))
    assert found.verdict == "not_comparable"
    assert found.comparability.comparable is False
    (line,) = found.comparability.reasons
    assert line.startswith(reason)
    assert found.sentence.startswith(f"not comparable: {line} (") and " -> " in found.sentence


def test_a_run_older_than_a_key_compares_with_its_default():
    younger = replace(flash(), config=flash().config | {"residual_dtype": "float32"})
    found = compare(slow(), younger)
    assert "residual_dtype" not in (slow().config or {}) and found.comparability.comparable
    assert "residual_dtype" not in found.differences


def test_force_gives_a_verdict_and_keeps_the_reasons():
    other = replace(flash(), config=flash().config | {"batch_size": 32})
    found = compare(slow(), other, force=True)
    assert found.verdict == "faster"
    assert found.comparability.forced and not found.comparability.comparable
    assert found.sentence.startswith("not comparable: batch_size 64 against 32; flash is 1.42x")


def test_a_step_of_0_ms_is_refused_by_name():
    one = slow_report()
    times = replace(one.window.step_ms, values=[0.0, *one.window.step_ms.values[1:]])
    with pytest.raises(ValueError, match="slow.*: one of its steps took 0 ms"):
        compared_capture(replace(one, window=replace(one.window, step_ms=times)))


def test_without_manifests_it_compares_and_says_what_it_could_not_check():
    sides = [replace(report, run=None) for report in (slow_report(), flash_report())]
    found = compare(*map(compared_capture, sides))
    assert found.verdict == "faster" and found.differences is None
    assert found.baseline.name == "slow"  # of the file
    lacking = "no manifest, so batch, model, dtype and versions could not be checked"
    assert found.comparability.notes[0] == f"both sides: {lacking}"
    assert sum("no manifest" in note for note in found.comparability.notes) == 1
    one = compare(slow(), compared_capture(sides[1]))
    assert one.comparability.notes[0] == f"flash: {lacking}"


def test_warnings_of_a_capture_are_notes_but_not_what_it_gives_away():
    findings = [
        Finding("warning", "2 of 20 steps are missing", None),
        Finding("warning", "it holds your environment", "python -m profiling scrub"),
        Finding("note", "overhead 3 %", None),
    ]
    report = flash_report()
    other = replace(report, health=replace(report.health, findings=findings))
    notes = compare(slow(), compared_capture(other)).comparability.notes
    assert notes == ["flash: 2 of 20 steps are missing"]


def test_an_environment_that_is_none_is_named():
    report = replace(slow_report(), run=replace(slow_report().run, environment={"packages": 3}))
    with pytest.raises(ValueError, match=r"slow.sqlite: .* Expected `object`, got `int` - at"):
        compared_capture(report)
    assert slow().environment.packages == ENVIRONMENT["packages"]


def test_another_commit_is_noted_not_refused():
    environment = replace(flash().environment, git=Git("fedcba9876543210", dirty=True))
    found = compare(slow(), replace(flash(), environment=environment))
    assert found.comparability.comparable
    assert "code: commit 0123456789 against fedcba9876 with changes" in found.comparability.notes


@pytest.mark.parametrize("mhz, noted", [(1634.0, True), (1970.0, False)])
def test_clocks_that_differ_are_noted(mhz, noted):
    """Clocks are compared by the captures' runs, and by runs themselves."""
    clocks = GpuClock(1980.0, None, None), GpuClock(mhz, "power", 95.0)
    reports = [
        replace(report, run=replace(report.run, gpu_clock=clock))
        for report, clock in zip((slow_report(), flash_report()), clocks, strict=True)
    ]
    found = compare(*map(compared_capture, reports)).comparability
    said = (
        f"GPU clock: 1980 MHz, against {mhz:.0f} MHz, throttled by its power limit 95 % of the "
        "time; at the lower clock unchanged kernels take longer too"
    )
    assert found.comparable and (said in found.notes) == noted
    one = compare(slow(), compared_capture(reports[1])).comparability
    assert not any("GPU clock" in note for note in one.notes), "that of one side is not known"


def test_captured_steps_that_contradict_the_uncaptured_ones_are_not_hidden():
    found = compare(slow(), replace(flash(), free_step_ms=10.3))
    assert found.free_step_ms.ratio == pytest.approx(10.3 / (10.8 * 0.97))
    assert any(
        note.startswith("profiler: the ratio of uncaptured") for note in found.comparability.notes
    )


def test_differences_of_the_configuration_leave_out_names_and_folders():
    other = flash().config | {"profile": {"kind": "nsys", "steps": 40}}
    found = config_differences(slow().config, other)
    assert found == {"attention": Pair("slow", "flash"), "profile.steps": Pair(20, 40)}
    assert factor(found) == "attention"
    assert flatten(CONFIG)["wandb.mode"] == "disabled"
    assert config_differences(slow().config, None) is None


def test_compile_names_the_difference_though_its_followers_change_too():
    config = slow().config | {"compile": True, "cuda_graphs": "true", "seed": 1}
    found = compare(slow(), replace(slow(), config=config))
    assert found.differs == ["compile", "cuda_graphs", "seed"]
    assert (found.baseline.name, found.candidate.name) == ("compile=false", "compile=true")


def test_two_keys_that_differ_name_nothing():
    found = compare(slow(), replace(flash(), config=flash().config | {"compile": True}))
    assert found.candidate.name == "flash"  # flash.sqlite
    assert factor(found.differences) is None


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("out-lr0.1", "out-lr0.1"),
        ("sweeps/learning_rate=0.001/", "learning_rate=0.001"),
        ("runs/v1.2.sqlite.gz", "v1.2"),
        ("flash.trace.json.gz", "flash"),
        ("flash.json", "flash"),
        ("C:\\captures\\nsys.nsys-rep", "nsys"),
    ],
)
def test_a_name_loses_its_folder_and_the_endings_of_captures_alone(file, name):
    assert stem(file) == name


def test_runs_of_a_sweep_are_told_apart():
    sides = [replace(slow(), file=f"out-lr0.{i}", config=None) for i in (1, 2)]
    found = compare(*sides)
    assert (found.baseline.name, found.candidate.name) == ("out-lr0.1", "out-lr0.2")


def test_speed_in_words():
    assert speed(0.5) == "2.00x faster"
    assert speed(1.5) == "1.50x slower"
    assert speed(1.031) == "3.1 % slower"
    assert speed(1 / 1.02) == "2.0 % faster"
