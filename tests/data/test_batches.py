import logging
import threading
import time

import numpy as np
import pytest
import torch

from configs.schema import Config
from data import sequences
from data.batches import CHUNK, IGNORED, Batches, cover_starts, draw_starts
from data.token_files import Tokens

CPU = torch.device("cpu")


@pytest.fixture
def tokens(tmp_path):
    """5,000 distinct ids in a file, so that a batch shows where it was cut."""
    path = tmp_path / "train.bin"
    np.arange(5000, dtype="<u2").tofile(path)
    return np.memmap(path, "<u2", mode="r")


@pytest.fixture
def make(tokens):
    """make(**keys): Batches of these tokens; keys of the configuration, or of Batches."""

    def make_batches(
        tokens=tokens, split="train", device=CPU, rank=0, world_size=1, storage="device", **keys
    ) -> Batches:
        defaults = dict(block_size=16, batch_size=3, gradient_accumulation_steps=2)
        config = Config(**{**defaults, **keys}, token_storage=storage)
        return Batches(Tokens([tokens]), split, config, device, rank, world_size)

    return make_batches


@pytest.mark.parametrize("storage", ["device", "mmap"])
def test_a_batch_is_sequences_of_the_text_and_their_successors(make, storage):
    batches = make(storage=storage)
    assert batches.sequences.storage == storage
    for iteration in range(4):
        for micro_step in range(2):
            x, y = batches.draw(iteration, micro_step)
            assert x.shape == y.shape == (3, 16)
            assert x.dtype == y.dtype == torch.int64
            assert x.is_contiguous() and y.is_contiguous()
            assert torch.equal(x, x[:, :1] + torch.arange(16))  # ids are positions here
            assert torch.equal(y, x + 1)


def test_both_storages_give_the_same_batches_across_chunks(make):
    device, mmap = make(), make(storage="mmap")
    for iteration in (0, 1, 2, CHUNK - 1, CHUNK, 5 * CHUNK + 7, 3):
        for micro_step in range(2):
            for ours, theirs in zip(
                device.draw(iteration, micro_step), mmap.draw(iteration, micro_step), strict=True
            ):
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize("storage", ["device", "mmap"])
def test_any_iteration_can_be_drawn_first(make, storage):
    direct, walked = make(storage=storage), make(storage=storage)
    x, _ = direct.draw(1000, 0)
    for iteration in range(1001):
        last, _ = walked.draw(iteration, 0)
    assert torch.equal(x, last)
    assert torch.equal(walked.draw(1000, 0)[0], x)  # and drawn twice


def test_ranks_together_see_what_one_rank_sees(make):
    alone = make(gradient_accumulation_steps=4)
    shared = [make(gradient_accumulation_steps=4, rank=rank, world_size=2) for rank in range(2)]
    for iteration in (0, 9, CHUNK + 1):
        for index in range(4):
            expected, _ = alone.draw(iteration, index)
            x, _ = shared[index % 2].draw(iteration, index // 2)
            assert torch.equal(x, expected)


def test_seed_split_iteration_and_micro_step_each_change_the_batch(make):
    first = make().draw(0, 0)[0]
    others = [
        make(seed=1).draw(0, 0)[0],
        make(split="val").draw(0, 0)[0],
        make().draw(1, 0)[0],
        make().draw(CHUNK, 0)[0],
        make().draw(0, 1)[0],
    ]
    for other in others:
        assert not torch.equal(first, other)
    assert torch.equal(first, make().draw(0, 0)[0])


def test_the_order_is_pinned():
    # Runs of different machines and NumPy versions are compared: the order must never change.
    starts = draw_starts(
        1_003_598, seed=1337, stream=0, chunk=1, accumulation_steps=2, batch_size=3
    )
    assert starts.shape == (CHUNK, 2, 3) and starts.dtype == np.int64
    assert starts[0].tolist() == PINNED


PINNED = [[922841, 6719, 55199], [708841, 759563, 628370]]


def test_starts_are_uniform_and_reach_both_ends():
    starts = draw_starts(10, seed=0, stream=0, chunk=0, accumulation_steps=4, batch_size=50)
    counts = np.bincount(starts.ravel(), minlength=10)
    assert len(counts) == 10
    expected = starts.size / 10
    assert np.abs(counts - expected).max() < 5 * expected**0.5  # five standard deviations


def test_no_global_random_state_is_touched(make):
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    make().draw(0, 0)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)


def test_a_text_of_one_sequence_is_enough_and_one_token_less_is_not(make, tokens):
    x, y = make(block_size=4999).draw(0, 0)
    assert x[0, 0] == 0 and y[0, -1] == 4999
    with pytest.raises(ValueError, match=r"block_size=5000: .*the val split has 5000 tokens"):
        make(block_size=5000, split="val")


def test_auto_keeps_tokens_on_the_device_up_to_a_quarter_of_its_memory(make, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(sequences, "free_bytes", lambda device: 4 * 4 * 5000)
    assert make(storage="auto").sequences.storage == "device"
    monkeypatch.setattr(sequences, "free_bytes", lambda device: 4 * 4 * 5000 - 4)
    assert make(storage="auto").sequences.storage == "mmap"
    assert "token_storage=mmap" in caplog.text


def test_free_memory_of_this_machine_is_plausible():
    assert 1 << 20 < sequences.free_bytes(CPU) < 1 << 50


def test_the_reading_thread_ends_with_its_batches(make):
    batches = make(storage="mmap")
    batches.draw(0, 0)
    (reader,) = (thread for thread in threading.enumerate() if thread.name == "batches_0")
    del batches
    reader.join(timeout=10)
    assert not reader.is_alive()


@pytest.mark.parametrize("storage, slow", [("mmap", "read"), ("device", "place")])
def test_what_the_host_waits_for_a_batch_is_counted(make, monkeypatch, storage, slow):
    batches, quick = make(storage=storage), getattr(sequences.Sequences, slow)
    batches.draw(0, 0)
    before_s = batches.waited_s
    monkeypatch.setattr(
        sequences.Sequences, slow, lambda *given: (time.sleep(0.2), quick(*given))[1]
    )
    batches.ahead, batches.chunks = None, {}
    batches.draw(1, 0)
    assert before_s < 0.2 <= batches.waited_s < 2
    next(iter(batches.cover(limit=1)))
    assert batches.waited_s < 2, "evaluation is another's time"


def test_a_failed_read_reaches_the_caller(make, monkeypatch):
    def broken(*arguments):
        raise OSError("disk on fire")

    monkeypatch.setattr(sequences.Sequences, "read", broken)
    with pytest.raises(OSError, match="disk on fire"):
        make(storage="mmap").draw(0, 0)


# The exact evaluation


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["device", "mmap"])
@pytest.mark.parametrize("block_size", [1, 4, 7, 16])
@pytest.mark.parametrize("extra", [1, 2, 5, 16, 33, 100])
def test_every_token_is_predicted_once(make, storage, block_size, extra):
    n_tokens = block_size + extra
    tokens = np.arange(n_tokens, dtype=np.uint16)
    for batch_size in (1, 3, 8):
        for world_size in (1, 2, 3):
            counted, rows = [], 0
            for rank in range(world_size):
                batches = make(
                    tokens,
                    rank=rank,
                    world_size=world_size,
                    storage=storage,
                    block_size=block_size,
                    batch_size=batch_size,
                    gradient_accumulation_steps=6,
                )
                for x, y in batches.cover():
                    assert x.shape == y.shape == (batch_size, block_size)
                    kept = y != IGNORED
                    assert torch.equal(y[kept], x[kept] + 1)
                    assert kept.any(), "a batch without a target would have no mean loss"
                    counted += y[kept].tolist()
                    rows += int(kept.any(dim=1).sum())
            assert sorted(counted) == list(range(1, n_tokens))  # N - 1 predictions, each once
            assert rows == batches.sequence_count


def test_a_limit_takes_an_evenly_spaced_sample(make):
    batches = make(block_size=10)
    assert batches.sequence_count == 500
    starts = [int(row[0]) for x, _ in batches.cover(limit=5) for row in x]
    assert starts[:5] == [0, 1000, 2000, 3000, 4000]
    counted = sum(int((y != IGNORED).sum()) for _, y in batches.cover(limit=5))
    assert counted == 50
    everything = sum(int((y != IGNORED).sum()) for _, y in batches.cover(limit=10**6))
    assert everything == 4999


def test_they_are_the_same_from_both_storages_and_shared_in_turn(make):
    alone = list(make(block_size=30).cover())
    shared = [
        list(make(block_size=30, rank=r, world_size=2, storage="mmap").cover()) for r in (0, 1)
    ]
    assert len(shared[0]) + len(shared[1]) == len(alone)
    for index, expected in enumerate(alone):
        for ours, theirs in zip(shared[index % 2][index // 2], expected, strict=True):
            assert torch.equal(ours, theirs)


def test_the_last_sequence_masks_what_was_counted_before():
    starts, masked = cover_starts(n_tokens=12, block_size=4)  # 11 predictions: 4 + 4 + 3
    assert starts.tolist() == [0, 4, 7]
    assert masked.tolist() == [0, 0, 1]


def test_masked_mean_is_the_mean_over_the_whole_text(make):
    torch.manual_seed(0)
    table = torch.randn(5000, 50)
    loss_of = torch.nn.functional.cross_entropy
    batches = make(block_size=48)
    total, count = 0.0, 0
    for x, y in batches.cover():
        targets = torch.where(y == IGNORED, IGNORED, y % 50)
        total += loss_of(
            table[x].flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        ).item()
        count += int((y != IGNORED).sum())
    expected = loss_of(table[:-1], torch.arange(1, 5000) % 50).item()
    assert count == 4999
    assert total / count == pytest.approx(expected, rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("storage", ["device", "mmap"])
def test_on_a_gpu_nothing_waits_for_it(make, storage):
    batches = make(device=torch.device("cuda", 0), storage=storage)
    reference = make()
    batches.draw(0, 0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        drawn = [batches.draw(i, m) for i in (1, 2, CHUNK, CHUNK + 1) for m in range(2)]
        evaluated = list(batches.cover())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = [reference.draw(i, m) for i in (1, 2, CHUNK, CHUNK + 1) for m in range(2)]
    for (x, y), (x_cpu, y_cpu) in zip(
        drawn + evaluated, expected + list(reference.cover()), strict=True
    ):
        assert x.is_cuda and torch.equal(x.cpu(), x_cpu) and torch.equal(y.cpu(), y_cpu)
