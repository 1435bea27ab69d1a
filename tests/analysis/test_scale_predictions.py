"""Rows for each number of GPUs: step, memory, and the chosen way of sharing."""

from dataclasses import replace

import pytest

from configs.sharing import Travel
from profiling.analysis.scale.model_sizes import buckets
from profiling.analysis.scale.prediction import Machine, choices, memory_of, predictions
from profiling.analysis.scale.scale_records import HostTime, LinkSpeed, Mode
from tests.helpers.scale import MB, TINY, work


def machine(memory_bytes: int | None = None, host_step_ms: float = 0.0) -> Machine:
    link = LinkSpeed(100.0, 50.0, 200.0, "given", "")
    network = replace(link, gb_per_s=10.0, low_gb_per_s=5.0)
    return Machine(8, link, network, HostTime(host_step_ms, 0.0, "assumed"), memory_bytes)


def test_one_gpu_is_what_was_measured_and_ranges_are_around_the_middle():
    rows = predictions(work(), machine(), (1, 2, 16), ("ddp", "fsdp", "hsdp"), 1000, None)
    assert [(row.gpus, row.nodes, row.mode) for row in rows] == [
        (1, 1, "one"),
        (2, 1, "ddp"),
        (2, 1, "fsdp"),
        (16, 2, "ddp"),
        (16, 2, "fsdp"),
        (16, 2, "hsdp"),
    ]
    alone = rows[0]
    assert (alone.step_ms, alone.efficiency_percent, alone.sent_bytes) == (20.0, 100.0, 0)
    assert alone.tokens_per_s == pytest.approx(50_000) and alone.fits is None
    for row in rows[1:]:
        assert row.fastest_ms < row.step_ms < row.slowest_ms
        assert row.tokens_per_s == pytest.approx(row.gpus * 1e6 / row.step_ms)
        assert row.efficiency_percent == pytest.approx(2000 / row.step_ms)
    assert rows[1].sent_bytes == 4 * TINY.parameters  # 2 (n-1)/n of float32 gradients


def test_a_host_that_launches_kernel_by_kernel_may_be_the_limit():
    ways: tuple[Mode, ...] = ("ddp", "fsdp")
    ddp, fsdp = predictions(work(), machine(host_step_ms=30.0), (4,), ways, 1000, None)
    assert fsdp.step_ms == 30.0 and fsdp.limited_by == "host"
    assert fsdp.fastest_ms < 25.0
    assert ddp.limited_by != "host" and ddp.step_ms < 21.0


def test_memory_of_each_way_of_sharing():
    whole, share = (memory_of(TINY, mode, shards, 1) for mode, shards in (("ddp", 1), ("fsdp", 4)))
    assert whole.known == 16 * TINY.parameters and whole.gathered == 0
    assert share.known - share.gathered == 4 * TINY.parameters
    # weights and gradients outside of blocks, two blocks of 16 bits, a block's gradients
    assert share.gathered == 8 * 500_000 + 2 * 2 * 250_000 + 4 * 250_000
    assert memory_of(TINY, "fsdp", 4, micro_steps=2).gradients == 4 * TINY.parameters
    three = replace(TINY, blocks=6, travel=Travel((range(3), range(3, 6)), kept=False))
    two = replace(three, travel=Travel((range(2), range(2, 4), range(4, 6)), kept=False))
    kept = replace(two, travel=replace(two.travel, kept=True))
    gathered = [memory_of(sizes, "fsdp", 4, 1).gathered - 8 * 500_000 for sizes in (three, two)]
    # the weights of two stretches, and the gradients of one
    assert gathered == [(6 * 2 + 3 * 4) * 250_000, (4 * 2 + 2 * 4) * 250_000]
    assert memory_of(kept, "fsdp", 4, 1).gathered == 8 * 500_000 + (6 * 2 + 2 * 4) * 250_000


def test_copies_need_a_place_to_come_to():
    def gathered(gpus=2, **changes):
        played = work(**{"averages": "copies"} | changes)
        (row,) = predictions(played, machine(), (gpus,), ("ddp",), 1000, None)
        return row.memory.gathered

    assert gathered(averages="collective") == gathered(gpus=16) == 0
    assert gathered() == max(size for size, _ in buckets(TINY.tensors(False), 0.9))
    shared = sum(work(shares_update=True).shared_buckets(2).values())
    halves = [gathered(shares_update=True, reduce_dtype=d) for d in ("float32", "bfloat16")]
    assert shared > 0 and halves[0] - halves[1] == 2 * shared
    assert halves[0] == 4 * (shared + TINY.table)


def test_ddp_is_for_all_that_fits():
    rows = predictions(work(), machine(10**9), (1, 8, 64), ("ddp", "fsdp", "hsdp"), 1000, 10**6)
    assert all(row.fits for row in rows)
    assert [each.mode for each in choices(rows)] == ["one", "ddp", "ddp"]
    small = machine(14 * MB)
    rows = predictions(work(), small, (1, 8, 64), ("ddp", "fsdp", "hsdp"), 1000, 10**6)
    assert [row.fits for row in rows] == [False, False, True, False, True, True]
    found = choices(rows)
    assert [each.mode for each in found] == ["one", "fsdp", "hsdp"]
    assert "no mode fits" in found[0].why and "ddp does not fit, 17.0 MB" in found[2].why
