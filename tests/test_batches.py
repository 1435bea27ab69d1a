import logging
import threading

import numpy as np
import pytest
import torch

from data import batches as batches_module
from data.batches import CHUNK, Batches, draw_starts
from data.windows import IGNORED, count_windows, cover, windows

CPU = torch.device("cpu")


@pytest.fixture
def tokens(tmp_path):
    """5,000 distinct ids in a file, so that a batch shows where it was cut."""
    path = tmp_path / "train.bin"
    np.arange(5000, dtype="<u2").tofile(path)
    return np.memmap(path, "<u2", mode="r")


@pytest.fixture
def make(tokens):
    made = []

    def make_batches(**keys) -> Batches:
        defaults = dict(
            block_size=16,
            batch_size=3,
            accumulation_steps=2,
            seed=1337,
            device=CPU,
            storage="device",
        )
        made.append(Batches(tokens, **{**defaults, **keys}))
        return made[-1]

    yield make_batches
    for batches in made:
        batches.close()


@pytest.mark.parametrize("storage", ["device", "mmap"])
def test_a_batch_is_windows_of_the_text_and_their_successors(make, storage):
    batches = make(storage=storage)
    assert batches.storage == storage
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
    alone = make(accumulation_steps=4)
    shared = [make(accumulation_steps=4, rank=rank, world_size=2) for rank in range(2)]
    for iteration in (0, 9, CHUNK + 1):
        for index in range(4):
            expected, _ = alone.draw(iteration, index)
            x, _ = shared[index % 2].draw(iteration, index // 2)
            assert torch.equal(x, expected)


def test_seed_stream_iteration_and_micro_step_each_change_the_batch(make):
    first = make().draw(0, 0)[0]
    others = [
        make(seed=1).draw(0, 0)[0],
        make(seed=-1).draw(0, 0)[0],
        make(stream=1).draw(0, 0)[0],
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


def test_a_text_of_one_window_is_enough_and_one_token_less_is_not(make, tokens):
    x, y = make(block_size=4999).draw(0, 0)
    assert x[0, 0] == 0 and y[0, -1] == 4999
    with pytest.raises(
        ValueError, match=r"block_size=5000: .*the validation split has 5000 tokens"
    ):
        make(block_size=5000, split="validation")


def test_micro_batches_that_cannot_be_shared_are_refused(make):
    with pytest.raises(ValueError, match="gradient_accumulation_steps=3: .*2 processes"):
        make(accumulation_steps=3, world_size=2)


def test_auto_keeps_tokens_on_the_device_up_to_a_quarter_of_its_memory(make, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(batches_module, "_free_bytes", lambda device: 4 * 4 * 5000)
    assert make(storage="auto").storage == "device"
    monkeypatch.setattr(batches_module, "_free_bytes", lambda device: 4 * 4 * 5000 - 4)
    assert make(storage="auto").storage == "mmap"
    assert "token_storage=mmap" in caplog.text
    with pytest.raises(ValueError, match="token_storage=ram"):
        make(storage="ram")


def test_free_memory_of_this_machine_is_plausible():
    assert 1 << 20 < batches_module._free_bytes(CPU) < 1 << 50


def test_close_ends_the_reading_thread(make):
    before = threading.active_count()
    batches = make(storage="mmap")
    batches.draw(0, 0)
    assert threading.active_count() == before + 1
    batches.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        batches.draw(0, 1)


def test_a_failed_read_reaches_the_caller(make, monkeypatch):
    def broken(*arguments):
        raise OSError("disk on fire")

    batches = make(storage="mmap")
    monkeypatch.setattr(batches_module, "read", broken)
    with pytest.raises(OSError, match="disk on fire"):
        batches.draw(0, 0)


# The exact evaluation


@pytest.mark.parametrize("storage", ["device", "mmap"])
@pytest.mark.parametrize("block_size", [1, 4, 7, 16])
@pytest.mark.parametrize("extra", [1, 2, 5, 16, 33, 100])
def test_windows_predict_every_token_once(storage, block_size, extra):
    n_tokens = block_size + extra
    ids = np.arange(n_tokens, dtype=np.uint16)
    tokens = torch.from_numpy(ids.astype(np.int32)) if storage == "device" else ids
    for batch_size in (1, 3, 8):
        for world_size in (1, 2, 3):
            counted, rows = [], 0
            for rank in range(world_size):
                for x, y in windows(tokens, block_size, batch_size, CPU, rank, world_size):
                    assert x.shape == y.shape == (batch_size, block_size)
                    kept = y != IGNORED
                    assert torch.equal(y[kept], x[kept] + 1)
                    assert kept.any(), "a batch without a target would have no mean loss"
                    counted += y[kept].tolist()
                    rows += int(kept.any(dim=1).sum())
            assert sorted(counted) == list(range(1, n_tokens))  # N - 1 predictions, each once
            assert rows == count_windows(n_tokens, block_size)


def test_a_limit_takes_an_evenly_spaced_sample(make):
    batches = make(block_size=10)
    assert batches.window_count == 500
    starts = [int(row[0]) for x, _ in batches.windows(limit=5) for row in x]
    assert starts[:5] == [0, 1000, 2000, 3000, 4000]
    counted = sum(int((y != IGNORED).sum()) for _, y in batches.windows(limit=5))
    assert counted == 50
    everything = sum(int((y != IGNORED).sum()) for _, y in batches.windows(limit=10**6))
    assert everything == 4999


def test_windows_are_the_same_from_both_storages_and_shared_in_turn(make):
    alone = list(make(block_size=30).windows())
    shared = [
        list(make(block_size=30, rank=r, world_size=2, storage="mmap").windows()) for r in (0, 1)
    ]
    assert len(shared[0]) + len(shared[1]) == len(alone)
    for index, expected in enumerate(alone):
        for ours, theirs in zip(shared[index % 2][index // 2], expected, strict=True):
            assert torch.equal(ours, theirs)


def test_the_last_window_masks_what_was_counted_before():
    starts, masked = cover(n_tokens=12, block_size=4)  # 11 predictions: 4 + 4 + 3
    assert starts.tolist() == [0, 4, 7]
    assert masked.tolist() == [0, 0, 1]


def test_masked_mean_is_the_mean_over_the_whole_text(make):
    torch.manual_seed(0)
    table = torch.randn(5000, 50)
    loss_of = torch.nn.functional.cross_entropy
    batches = make(block_size=48)
    total, count = 0.0, 0
    for x, y in batches.windows():
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
        evaluated = list(batches.windows())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = [reference.draw(i, m) for i in (1, 2, CHUNK, CHUNK + 1) for m in range(2)]
    for (x, y), (x_cpu, y_cpu) in zip(
        drawn + evaluated, expected + list(reference.windows()), strict=True
    ):
        assert x.is_cuda and torch.equal(x.cpu(), x_cpu) and torch.equal(y.cpu(), y_cpu)
