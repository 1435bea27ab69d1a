"""Another attention backend from the lab's times: what a capture's operations become, refusals."""

from dataclasses import replace

import pytest

from configs.backends import BACKENDS
from profiling.analysis.analysis import Analysis
from profiling.analysis.whatif.swap import Lab, LabRow, Shape, attention_rows, swapped
from profiling.analysis.whatif.whatif import Asked, replayable, what_if
from profiling.analysis.whatif.work import work_of
from profiling.shared.manifest import AttentionFacts
from tests.helpers.captures import capture_of

SHAPE = Shape(64, 6, 256, 64, "bfloat16", 0.2)
FLASH, SLOW = (0.04, 0.11), (0.44, 0.61)  # ms of a forward and of a backward, made up


def lab(shape: Shape = SHAPE, **ms: tuple[float, float]) -> Lab:
    rows = [
        LabRow(*vars(shape).values(), backend, direction, each)
        for backend, both in ms.items()
        for direction, each in zip(("forward", "backward"), both, strict=True)
    ]
    return Lab("attention", "NVIDIA H200", rows)


def of(name: str, ran: str):
    """A capture, and the manifest of the run with this attention."""
    manifest = capture_of("flash_eager.trace").manifest
    facts = AttentionFacts(ran, ran, "kernels")
    config = manifest.config | {"attention": ran}
    return Analysis(capture_of(name).trace), replace(manifest, attention=facts, config=config)


def test_fused_kernels_take_as_many_times_as_long_as_in_the_lab():
    analysis, manifest = of("flash_eager", "flash")
    cycle = work_of(analysis, *replayable(analysis, None)).cycle()
    change = swapped(analysis, manifest, cycle, "slow", lab(flash=FLASH, slow=SLOW))
    changed = change.apply(cycle).gpu.took_ns / cycle.gpu.took_ns
    kernels = BACKENDS["flash"].kernels
    for row, times in zip(cycle.gpu.name, changed, strict=True):
        name = cycle.names[row]
        own = any(each in name for each in kernels)
        assert times == pytest.approx(1 if not own else 11 if "_fwd_" in name else 61 / 11)
    asked = Asked(attention="slow", lab=lab(flash=FLASH, slow=SLOW))
    (row,) = what_if(analysis, manifest, asked).predictions
    assert row.step_ms - what_if(analysis, manifest, Asked()).free.ms > 4
    assert row.try_it and row.try_it.endswith(" attention=flash,slow")


def test_around_each_softmax_as_much_counts_as_the_lab_measured():
    analysis, manifest = of("slow_eager", "slow")
    cycle = work_of(analysis, *replayable(analysis, None)).cycle()
    change = swapped(analysis, manifest, cycle, "flash", lab(flash=FLASH, slow=SLOW))
    gone_ms = (cycle.gpu.took_ns - change.apply(cycle).gpu.took_ns).sum() / 1e6 / cycle.steps
    assert gone_ms == pytest.approx(6 * (sum(SLOW) - sum(FLASH)), rel=0.1)
    assert not len(attention_rows(cycle, "slow", False, 5, SLOW[0])), "not one for each call"


@pytest.mark.parametrize(
    ("ran", "known", "why"),
    [
        ("flash", None, "measure both on NVIDIA H200: python -m profiling attention --backward "),
        ("flash", lab(flash=FLASH), "--backends flash,slow --batch 64 --heads 6 --seq 256 "),
        ("flash", lab(replace(SHAPE, dropout=0.0), flash=FLASH, slow=SLOW), "nothing measured"),
        ("flash", replace(lab(flash=FLASH, slow=SLOW), device="H100"), "nothing measured"),
        ("flash", lab(flash=SLOW, slow=SLOW), "another program or GPU clock"),
        ("triton", lab(triton=FLASH, slow=SLOW), "the kernels of triton's forward are not found"),
        ("slow", lab(flash=FLASH, slow=SLOW), "the capture already has it"),
        ("unknown", None, "needs a capture of this trainer"),
    ],
)
def test_what_no_measurement_says_is_refused(ran, known, why):
    analysis, manifest = of("flash_eager", ran)
    with pytest.raises(ValueError, match="--swap attention=slow: ") as refused:
        what_if(analysis, manifest, Asked(attention="slow", lab=known))
    assert why in str(refused.value) and "\n" not in str(refused.value)
