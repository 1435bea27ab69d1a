"""Two reports compared: buckets that add up, refusals that name their reason, and true words."""

import pytest
from hand_reports import CONFIG, flash, report, slow

from profiling.analysis.difference.comparability import config_differences, factor, flat
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.sentence import sentence, speed


def deltas(comparison: dict) -> dict[str, float]:
    return {row["bucket"]: row["delta_ms"] for row in comparison["buckets"]}


def test_the_fields_of_the_fixed_schema_are_there():
    found = compare(slow(), flash())
    assert found["schema_version"] == 1
    assert {"baseline", "candidate", "step_ms", "verdict", "buckets", "families", "ranges"} <= set(
        found
    )
    assert {"baseline", "candidate", "ratio", "ci95"} <= set(found["step_ms"])
    assert set(found["kernels"]) == {"added", "removed"}
    assert found["differs"] == ["attention"]
    assert found["comparability"]["comparable"] is True
    assert found["comparability"]["reasons"] == []


def test_flash_is_faster_by_its_attention_and_the_sentence_says_so():
    found = compare(slow(), flash())
    low, high = found["step_ms"]["ci95"]
    assert found["verdict"] == "faster"
    assert low < found["step_ms"]["ratio"] < high < 0.8
    assert sentence(found) == (
        "flash is 1.42x faster than slow (10.80 -> 7.61 ms a step): "
        "attention 4.10 -> 0.900 ms, everything else within noise"
    )


def test_the_buckets_add_up_to_the_difference_of_the_means():
    one, other = slow(), flash()
    found = compare(one, other)
    whole = other["window"]["step_ms"]["mean"] - one["window"]["step_ms"]["mean"]
    assert sum(deltas(found).values()) == pytest.approx(whole, abs=1e-9)
    assert deltas(found)["compute"] == pytest.approx(-3.2)
    assert "unexplained" not in deltas(found)


def test_what_the_parts_leave_of_the_step_is_a_bucket_of_its_own():
    other = flash()
    other["breakdown"]["compute_ms"] -= 0.5
    found = compare(slow(), other)
    assert deltas(found)["unexplained"] == pytest.approx(0.5)


def test_without_gpu_activity_the_phases_of_the_host_are_the_buckets():
    one, other = slow(), flash()
    for side in (one, other):
        side.update(breakdown=None, idle=None, families=None, kernels=None)
    other["ranges"][1]["host_ms"] = 1.3 * 20
    found = compare(one, other)
    assert deltas(found)["host_backward"] == pytest.approx(1.0)
    assert "host_other" in deltas(found)
    assert found["families"] is None
    assert found["kernels"] == {"added": [], "removed": []}


def test_without_phases_either_there_are_no_buckets():
    one, other = slow(), flash()
    for side in (one, other):
        side.update(breakdown=None, idle=None, families=None, ranges=[])
    found = compare(one, other)
    assert found["buckets"] is None and found["ranges"] is None
    assert sentence(found) == "flash is 1.42x faster than slow (10.80 -> 7.61 ms a step)"


def test_equal_captures_do_not_differ_in_either_direction():
    for one, other in ((slow(), slow()), (flash(), flash())):
        found = compare(one, other)
        assert found["verdict"] == "no_difference"
        assert sentence(found).startswith(
            "no difference between the baseline and the candidate: 0.9"
        )


def test_less_than_what_two_starts_differ_by_is_no_difference():
    """Steps of a quiet machine agree to a thousandth; another process would not."""
    one = report("a.sqlite", {"gemm": 10.0}, jitter=0.0001)
    other = report("b.sqlite", {"gemm": 10.05}, jitter=0.0001)
    found = compare(one, other)
    assert found["step_ms"]["ci95"][0] > 1
    assert found["verdict"] == "no_difference"
    much = report("b.sqlite", {"gemm": 10.3}, jitter=0.0001)
    assert compare(one, much)["verdict"] == "slower"


def test_a_part_that_went_and_one_that_came_count_from_and_to_nothing():
    one = report("eager.sqlite", {"gemm": 5.0, "softmax": 2.0, "dropout": 1.0})
    other = report("fused.sqlite", {"gemm": 5.0, "attention": 0.8})
    rows = {row["family"]: row for row in compare(one, other)["families"]}
    assert (rows["softmax"]["baseline_ms"], rows["softmax"]["candidate_ms"]) == (2.0, 0.0)
    assert rows["attention"]["delta_ms"] == pytest.approx(0.8)
    assert "softmax 2.00 -> 0 ms" in sentence(compare(one, other))


def test_many_small_changes_are_not_called_noise():
    one = report("a.sqlite", {f"family{i}": 1.0 for i in range(10)})
    other = report("b.sqlite", {f"family{i}": 0.8 for i in range(10)})
    assert sentence(compare(one, other)).endswith("all else -1.20 ms together")


def test_saved_kernel_time_that_only_became_idle_is_told():
    one = report("slow.sqlite", {"gemm": 5.0, "attention": 4.0}, {"launch": 1.0})
    other = report("flash.sqlite", {"gemm": 5.0, "attention": 1.0}, {"launch": 4.5})
    found = compare(one, other)
    assert found["verdict"] == "slower"
    said = sentence(found)
    assert "GPU idle, launch-bound 1.00 -> 4.50 ms" in said and "attention 4.00 -> 1.00 ms" in said


def test_kernels_that_came_and_went_with_their_time_of_a_step():
    found = compare(slow(), flash())["kernels"]
    assert found["removed"] == [
        {"name": "attention_kernel", "family": "attention", "count": 6, "ms": pytest.approx(4.1)}
    ]
    assert [row["name"] for row in found["added"]] == ["flash_fwd"]


def test_phases_side_by_side():
    rows = {row["name"]: row for row in compare(slow(), flash())["ranges"]}
    assert rows["forward"]["baseline_gpu_ms"] == pytest.approx(0.4 * 10.8)
    assert rows["forward"]["delta_host_ms"] == 0
    other = flash()
    other["ranges"] = other["ranges"][:1]
    rows = {row["name"]: row for row in compare(slow(), other)["ranges"]}
    assert rows["backward"]["candidate_gpu_ms"] is None
    assert rows["backward"]["delta_gpu_ms"] is None


def changed(change) -> dict:
    other = flash()
    change(other)
    return other


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: r["capture"]["devices"][0].update(name="A100"), "GPU: NVIDIA H200 against A100"),
        (lambda r: r["capture"].update(kind="kineto"), "kind of capture: nsys against kineto"),
        (lambda r: r["run"]["config"].update(batch_size=32), "batch_size: 64 against 32"),
        (lambda r: r["run"]["config"].update(n_layer=12), "n_layer: 6 against 12"),
        (lambda r: r["run"]["config"].update(dtype="float32"), "dtype: bfloat16 against float32"),
        (lambda r: r["run"]["environment"]["packages"].update(torch="2.6"), "torch: version 2.11"),
        (lambda r: r["run"]["environment"].update(cuda="12.4"), "cuda: version 13.0 against 12.4"),
        (lambda r: r["window"]["step_ms"].update(values=[1.0]), "steps: the candidate has 1"),
    ],
)
def test_what_does_not_compare_is_refused_by_name(change, reason):
    found = compare(slow(), changed(change))
    assert found["verdict"] == "not_comparable"
    assert found["comparability"]["comparable"] is False
    (line,) = found["comparability"]["reasons"]
    assert line.startswith(reason)
    assert sentence(found).startswith("not comparable: ")


def test_force_gives_a_verdict_and_keeps_the_reasons():
    other = changed(lambda r: r["run"]["config"].update(batch_size=32))
    found = compare(slow(), other, force=True)
    assert found["verdict"] == "faster"
    assert found["comparability"]["forced"] and not found["comparability"]["comparable"]


def test_force_cannot_make_an_interval_of_one_step():
    other = changed(lambda r: r["window"]["step_ms"].update(values=[1.0]))
    assert compare(slow(), other, force=True)["verdict"] == "not_comparable"


def test_without_manifests_it_compares_and_says_what_it_could_not_check():
    one, other = slow(), flash()
    one["run"] = other["run"] = None
    found = compare(one, other)
    assert found["verdict"] == "faster" and found["differences"] is None
    assert found["baseline"]["name"] == "slow"  # of the file
    assert sum("no manifest" in note for note in found["comparability"]["notes"]) == 2


def test_another_commit_is_noted_not_refused():
    other = changed(lambda r: r["run"]["environment"]["git"].update(commit="fedcba9876543210"))
    found = compare(slow(), other)
    assert found["comparability"]["comparable"]
    assert "code: commit 0123456789 against fedcba9876" in found["comparability"]["notes"]


def test_captured_steps_that_contradict_the_uncaptured_ones_are_not_hidden():
    other = flash()
    other["health"]["free_step_ms"] = 10.3
    found = compare(slow(), other)
    assert found["free_step_ms"]["ratio"] == pytest.approx(10.3 / (10.8 * 0.97))
    assert any(note.startswith("profiler: uncaptured") for note in found["comparability"]["notes"])


def test_differences_of_the_configuration_leave_out_names_and_folders():
    one, other = slow(), flash()
    other["run"]["config"]["profile"] = {"kind": "nsys", "steps": 40}
    found = config_differences(one, other)
    assert found == {
        "attention": {"baseline": "slow", "candidate": "flash"},
        "profile.steps": {"baseline": 20, "candidate": 40},
    }
    assert factor(found) == "attention"
    assert flat(CONFIG)["wandb.mode"] == "disabled"


def test_compile_names_the_difference_though_its_followers_change_too():
    other = slow()
    other["run"]["config"] |= {"compile": True, "cuda_graphs": "true", "seed": 1}
    found = compare(slow(), other)
    assert found["differs"] == ["compile", "cuda_graphs", "seed"]
    assert (found["baseline"]["name"], found["candidate"]["name"]) == (
        "compile=false",
        "compile=true",
    )


def test_two_keys_that_differ_name_nothing():
    other = flash()
    other["run"]["config"]["compile"] = True
    assert compare(slow(), other)["candidate"]["name"] == "flash"  # flash.sqlite
    assert factor(compare(slow(), other)["differences"]) is None


def test_speed_in_words():
    assert speed(0.5) == "2.00x faster"
    assert speed(1.5) == "1.50x slower"
    assert speed(1.031) == "3.1 % slower"
    assert speed(1 / 1.02) == "2.0 % faster"
