"""Planted hangs: the collective, the ranks in it, the missing ranks, and the reason."""

import pytest

from profiling.analysis.hang.analysis import read_hang
from profiling.analysis.hang.hang_records import Hang
from profiling.report.hang import headline
from tests.helpers.flight_dumps import HOSTS, PlantedRank, planted

TIMEOUT_S = 700.0  # when the watchdog has the dumps written


@pytest.fixture
def read(tmp_path):
    """read(ranks, at_s): what is said of the dumps that these leave then."""

    def write_and_read(ranks: list[PlantedRank], at_s: float = TIMEOUT_S) -> Hang:
        for rank in ranks:
            rank.write(tmp_path, at_s)
        return read_hang([tmp_path])

    return write_and_read


def test_a_rank_that_skips_an_all_reduce(read):
    ranks = planted(4)
    for rank in ranks:
        if rank.rank != 1:
            rank.call(8, done=False)
    hang = read(ranks)
    (stuck,) = hang.stuck
    assert hang.answer == "hang" and stuck.why == "absent" and stuck.sequence == 8
    assert (stuck.waiting, stuck.absent, stuck.no_dump) == ([0, 2, 3], [1], [])
    assert stuck.waited_s == 692 and stuck.timeout_s == 600
    assert stuck.members == [0, 1, 2, 3] and stuck.group == "0 (default_pg)"
    call = stuck.variants[0].call
    assert (call.name, call.input_sizes, call.dtypes) == ("all_reduce", [[1376]], ["Float"] * 2)
    assert call.stack == [
        "step/step.py:90 in average_gradients",
        "work/train.py:112 in train_on",
    ]
    last = hang.ranks[1].last_finished
    assert last and last.sequence == 7 and last.finished and hang.ranks[1].last_entered == last
    assert headline(hang) == (
        "all_reduce 8 of group 0 (default_pg) hangs: ranks 0, 2-3 have waited in it for 692.0 s, "
        "rank 1 has not entered it"
    )


def test_a_rank_that_skipped_one_and_went_on_to_another_kind(read):
    ranks = planted(3)
    for rank in ranks:
        if rank.rank != 2:
            rank.call(8, done=False)
        rank.call(9, "broadcast", (1,), done=False)
    (stuck,) = read(ranks).stuck
    assert stuck.why == "mismatch" and stuck.sequence == 8
    assert [(v.ranks, v.call.name) for v in stuck.variants] == [
        ([0, 1], "all_reduce"),
        ([2], "broadcast"),
    ]


@pytest.mark.parametrize(
    "other",
    [dict(name="all_gather"), dict(sizes=(1000,)), dict(dtype="BFloat16"), dict(sizes=(16, 86))],
)
def test_ranks_that_call_different_things(read, other):
    ranks = planted(4)
    for rank in ranks:
        rank.call(8, done=False, **(other if rank.rank == 3 else {}))
    hang = read(ranks)
    (stuck,) = hang.stuck
    assert hang.answer == "hang" and stuck.why == "mismatch" and stuck.sequence == 8
    assert [variant.ranks for variant in stuck.variants] == [[0, 1, 2], [3]]
    words = (
        "the ranks disagree at collective 8 of group 0 (default_pg): ranks 0-2 call all_reduce of "
    )
    assert headline(hang).startswith(f"{words}[1376] Float, rank 3 calls ")


def test_calls_that_parted_before_one_hangs_are_the_cause(read):
    """NCCL may well finish collectives that do not fit."""
    ranks = planted(2)
    for rank in ranks:
        rank.call(8, sizes=(4 + rank.rank,))
        rank.call(9)
        rank.call(10, done=False)
    (stuck,) = read(ranks).stuck
    assert (stuck.why, stuck.sequence, stuck.waiting) == ("mismatch", 8, [0, 1])
    assert stuck.waited_s == 690


def test_shares_of_each_rank_may_differ(read):
    ranks = planted(2)
    for rank in ranks:
        rank.call(8, "all_to_all_single", sizes=(4 + rank.rank,))
        rank.call(9, "all_to_all_single", sizes=(4 + rank.rank,), done=False)
    (stuck,) = read(ranks).stuck
    assert stuck.why == "entered" and stuck.sequence == 9


def test_a_rank_without_a_dump(read):
    ranks = planted(4)[:3]
    for rank in ranks:
        rank.call(8, done=False)
    hang = read(ranks)
    assert hang.no_dump == hang.stuck[0].no_dump == [3] and hang.world_size == 4
    assert hang.stuck[0].why == "no_dump"
    lost = "rank 3 left no dump: the process died or could not be reached"
    assert headline(hang).endswith(f"ranks 0-2 have waited in it for 692.0 s, {lost}")


def test_all_ranks_are_in_it(read):
    ranks = planted(2)
    for rank in ranks:
        rank.call(8 + rank.rank, done=False)
    hang = read(ranks)
    assert hang.stuck[0].why == "entered" and hang.stuck[0].waiting == [0, 1]
    assert hang.stuck[0].waited_s == 692  # of the one that came first


def test_what_one_rank_has_finished_is_over_for_all_that_entered_it(tmp_path):
    """Rank 1's dump was written while its GPU was in the last all-reduce that both have entered."""
    first, second = planted(2)
    first.call(8)
    second.call(8, done=False)
    first.call(9, done=False)
    first.write(tmp_path, 700)
    second.write(tmp_path, 8.1)
    (stuck,) = read_hang([tmp_path]).stuck
    assert (stuck.why, stuck.sequence, stuck.waiting, stuck.absent) == ("absent", 9, [0], [1])
    assert stuck.waited_s == 691


def test_nothing_hangs(read):
    hang = read(planted(4))
    assert hang.answer == "none" and hang.stuck == [] and hang.notes == []
    assert headline(hang) == "nothing hangs: every collective that was entered has finished"
    assert all(rank.last_finished and rank.last_finished.sequence == 7 for rank in hang.ranks)


def test_a_moment_of_a_healthy_run_is_no_hang(tmp_path):
    """Each rank answers when it looks, and the host runs ahead of its GPU."""
    for rank in (ranks := planted(3)):
        for step in range(2 * rank.rank):
            rank.call(8 + step / 10, done=False)
        rank.write(tmp_path, 8 + rank.rank)
    hang = read_hang([tmp_path])
    assert hang.answer == "moment" and len(ranks) == len(hang.ranks)
    assert headline(hang).startswith(
        "no hang so far: all_reduce 8 of group 0 (default_pg) has waited"
    )


def test_gloo_says_neither_when_a_call_ends_nor_who_is_in_the_group(tmp_path):
    """An error closes an entry as an end does; the trainer's note knows better."""
    first, second = planted(2, backend="gloo")
    first.call(8)
    first.write(tmp_path, 14, error="RuntimeError: Timed out", in_collective=True)
    second.write(tmp_path, 16, stack=["data/batches.py:7 in draw"])
    hang = read_hang([tmp_path])
    (stuck,) = hang.stuck
    assert hang.answer == "hang" and stuck.why == "absent" and stuck.timed_out
    assert (stuck.waiting, stuck.absent, stuck.waited_s) == ([0], [1], 6)
    assert stuck.members == [0, 1] and hang.ranks[1].stack == ["data/batches.py:7 in draw"]


def test_a_root_that_went_on_waits_behind_the_one_that_another_lacks(read):
    """A broadcast ends for its root when it has sent."""
    root, other = planted(2, backend="gloo")
    root.call(8, "broadcast")
    root.call(9, done=False)
    (stuck,) = read([root, other]).stuck
    assert (stuck.sequence, stuck.waiting, stuck.absent, stuck.waited_s) == (8, [0], [1], 691)
    assert stuck.variants[0].call.name == "broadcast"


def test_a_group_that_fell_out_of_one_ring_is_not_waited_for(read):
    ranks = planted(2)
    ranks[0].groups = ranks[1].groups = {"1": [0, 1]}
    ranks[0].call(8, group=("1", "undefined"))
    assert read(ranks).answer == "none"


def test_a_host_that_waits_for_a_row_is_not_the_finding_where_its_gpu_waits_too(tmp_path):
    """Rank 0 has launched its all-reduce, then tells the others what it read before it."""
    for rank in (ranks := planted(2)):
        rank.call(7.5, "all_gather", group=HOSTS)
    ranks[0].call(8, done=False)
    ranks[0].call(8.1, "all_gather", done=False, group=HOSTS)
    for rank in ranks:
        rank.write(tmp_path, 100, note=True)
    first, second = read_hang([tmp_path]).stuck
    assert (first.group, first.sequence) == ("0 (default_pg)", 8)
    assert (second.group, second.sequence) == ("1 (hosts)", 2)
    for stuck in (first, second):
        assert (stuck.why, stuck.waiting, stuck.absent) == ("absent", [0], [1])


@pytest.mark.parametrize("is_there", [True, False])
def test_hosts_that_hang_while_the_gpus_are_done(tmp_path, is_there):
    """Rank 1 stands before the first of what hosts tell each other, or is gone."""
    first, second = planted(2)
    first.call(8, "all_gather", group=HOSTS)
    first.write(tmp_path, 608, error="RuntimeError: Timed out", in_collective=True)
    if is_there:
        second.write(tmp_path, 610, stack=["data/batches.py:7 in draw"])
    hang = read_hang([tmp_path])
    (stuck,) = hang.stuck
    assert hang.answer == "hang" and stuck.group == "1 (hosts)" and stuck.timed_out
    assert (stuck.why, stuck.waiting) == ("absent" if is_there else "no_dump", [0])
    assert stuck.members == [0, 1]


def test_an_error_of_its_own_comes_before_all_that_follows_from_it(tmp_path):
    first, second = planted(2, backend="gloo")
    first.call(8)
    closed = "RuntimeError: Connection closed by peer"
    first.write(tmp_path, 8.2, error=closed, in_collective=True)
    second.write(tmp_path, 8.1, error="IndexError: out of range", stack=["data/x.py:7 in draw"])
    hang = read_hang([tmp_path])
    assert hang.answer == "error" and hang.stuck[0].absent == [1]
    said = "rank 1 ended with an error: IndexError: out of range, at data/x.py:7 in draw"
    assert headline(hang) == said


def test_a_rank_that_waits_in_another_group_is_looked_at_there(read):
    """Ranks 0 and 1 wait for 2, which waits for 3 in a group of these two."""
    ranks = planted(4)
    pair = ("1", "undefined")
    for rank in ranks[2:]:
        rank.groups = {"1": [2, 3]}
        rank.call(8, group=pair)
    ranks[2].call(9.5, "all_gather", group=pair, done=False)
    for rank in ranks[:2]:
        rank.call(9, done=False)
    first, second = read(ranks).stuck
    assert (first.group, first.waiting, first.absent, first.members) == ("1", [2], [3], [2, 3])
    assert second.group == "0 (default_pg)" and second.absent == [2, 3]


def test_only_what_lies_in_all_rings_is_compared(read):
    """A ring that has dropped its first entries is no rank that is missing."""
    ranks = planted(3, steps=50)
    for rank in ranks:
        rank.call(60, done=False)
        del rank.entries[: 10 * rank.rank]
    hang = read(ranks)
    assert hang.stuck[0].why == "entered" and hang.stuck[0].sequence == 51


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_dump_that_was_asked_for_before_tells_nothing_of_a_later_hang(tmp_path, backend):
    """The dump is of a rank that was asked while all was well, and was killed later."""
    ranks = planted(3, backend=backend)
    ranks[1].write(tmp_path, 9)
    for rank in (ranks[0], ranks[2]):
        for second in range(10, 20):
            rank.call(second)
        rank.call(20, done=False)
        rank.write(tmp_path, 620)
    hang = read_hang([tmp_path])
    (stuck,) = hang.stuck
    assert (stuck.why, stuck.sequence, stuck.no_dump) == ("no_dump", 18, [1])
    assert stuck.waited_s == 600 and hang.no_dump == [1]
    assert hang.notes == [
        "rank 1: the dump was written earlier and is left out: the other ranks have finished "
        "more collectives since then"
    ]


def test_dumps_of_two_runs_are_noticed(tmp_path):
    first, second = planted(2)
    first.write(tmp_path, 9)
    second.write(tmp_path, 4000)
    assert read_hang([tmp_path]).notes == [
        "the dumps are 3,991 s apart, so they may be from different runs"
    ]


@pytest.mark.slow
def test_512_ranks(tmp_path):
    ranks = planted(512, steps=20)
    for rank in ranks:
        if rank.rank != 300:
            rank.call(21, done=False)
        rank.write(tmp_path, 1100)
    hang = read_hang([tmp_path])
    assert hang.stuck[0].absent == [300] and len(hang.stuck[0].waiting) == 511
    assert "ranks 0-299, 301-511 have waited" in headline(hang)
