"""Predicts peaks by made-up memory snapshots: the numbers are calculated by hand."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.memory import changed
from profiling.analysis.memory.analysis import report_of_highest
from profiling.analysis.memory.changed import as_recorded
from profiling.analysis.memory.device_memory import read_memory
from profiling.analysis.memory.fit import fit_of
from profiling.analysis.memory.growth import alike_in_size
from profiling.analysis.memory.memory_records import Fit, Plan
from profiling.analysis.memory.program import Program
from profiling.shared.manifest import CapturedWindow, Manifest
from profiling.shared.model_description import GPT2Keys, gpt2
from profiling.shared.units import binary_bytes
from profiling.verbs import report
from tests.helpers.memory_snapshots import (
    BACKWARD,
    MAKE,
    MIB,
    STATE,
    STEP,
    ZERO,
    Allocator,
    Frames,
    Training,
    in_forward,
    in_main,
    out_of_memory,
    pickled,
)
from tests.paths import CAPTURES

LAYERS, WEIGHT = 8, 3 * MIB + 1024
EACH = 640 * 1024  # bytes of a sample's activation in a layer


def training(batch: int, **keys) -> Training:
    """A training without rests of free blocks: in expandable segments there are none."""
    keys = {"layers": LAYERS, "weight": WEIGHT, "activation": batch * EACH} | keys
    return Training(Allocator(expandable=True), **keys).make().run(3)


def peak(batch: int) -> int:
    """The highest moment is in the first layer of backward, or with small batches in the update.

    There lie weights and moments, activations of all layers and one more, and a gradient; or all
    gradients and a temporary.
    """
    state = 3 * LAYERS * WEIGHT
    return state + max((LAYERS + 1) * batch * EACH + WEIGHT, (LAYERS + 1) * WEIGHT)


@pytest.fixture
def write(tmp_path):
    def written(made: Training | Allocator, name: str = "a.pickle") -> Path:
        path = tmp_path / name
        made = made if isinstance(made, Training) else Training(made)
        path.write_bytes(pickled(made.snapshot()))
        return path

    return written


def fit(paths, batches=(), contexts=(), memory_bytes=None, plans=()) -> Fit:
    memories = [memory for path in paths for memory in read_memory(path)]
    found = report_of_highest(memories, None)
    return fit_of(found, memories, batches, contexts, memory_bytes, plans)


def peaks(found: Fit) -> dict[str, tuple[int, int, int]]:
    return {r.change: (r.least_bytes, r.peak_bytes, r.most_bytes) for r in found.predicted}


@pytest.mark.parametrize("expected", [5, 16, 32, 1000])
def test_two_batches_tell_any_other(write, expected):
    paths = [write(training(8)), write(training(12), "b.pickle")]
    found = fit(paths, [8, 12], plans=[Plan(batch=expected)])
    assert peaks(found)[f"batch {expected}"] == 3 * (peak(expected),)
    assert found.predicted[0].assumes.endswith("through its sizes at batch 12 and 8")
    assert found.predicted[0].phase == ("optimizer" if expected == 1 else "backward")


def test_the_largest_batch(write):
    paths = [write(training(8)), write(training(12), "b.pickle")]
    memory = -(-peak(40) * 100 // 95)  # 95 % of it are for tensors
    (batch, *_) = fit(paths, [8, 12], memory_bytes=memory).largest
    assert (batch.now, batch.fits, batch.may_fit, batch.peak_bytes) == (12, 40, 40, peak(40))
    found = fit(paths, [8, 12], memory_bytes=memory - 2)
    assert found.largest[0].fits == 39
    assert found.sentence.startswith("Batch 39 fits into ") and "; 12 was" in found.sentence
    assert fit(paths, [8, 12], memory_bytes=1 << 20).sentence.startswith("No batch surely fits")
    fits = {row.change: row.fits for row in found.predicted}
    assert fits["batch 24"] is True and fits["batch 48"] is False


@pytest.mark.parametrize("rest", [0, 94])
def test_one_batch_tells_by_divisibility(write, rest):
    """Knows compiled code's rows, too, of which the last one lacks its padding."""
    found = fit([write(training(8, activation=8 * EACH - rest))], [8])
    assert peaks(found)["batch 16"] == 3 * (peak(16),)
    assert found.sentence.startswith(
        "The largest batch cannot be told: how much memory the GPU has is not known: give "
        "--gpu-memory 80GiB. The lowest of the predicted peaks is "
    )
    lowest = min(found.predicted, key=lambda row: row.peak_bytes)
    assert found.sentence.endswith(f"{binary_bytes(lowest.peak_bytes)}, with {lowest.change}")


@pytest.mark.parametrize("padding", [0, 4096])
def test_what_may_be_a_copy_of_a_weight_is_an_interval(write, padding):
    """Gives both answers where an activation is as large as a weight in 16 bits, or a bit more."""
    weight = 2 * 8 * 96 * 1024
    made = training(8, weight=weight, activation=weight // 2 + padding)
    state, most = 3 * LAYERS * weight, (LAYERS + 1) * weight  # of 16 samples
    least, _, highest = peaks(fit([write(made)], [8]))["batch 16"]
    assert least == state + most + 2 * padding  # in the first layer's backward
    assert highest == state + most + weight + 2 * (LAYERS + 1) * padding  # in the last one's


def test_a_padded_copy_of_a_weight_in_its_own_type_is_an_interval(write):
    weight = 2 * 8 * 96 * 1024
    made = training(8, weight=weight, activation=weight + 4096)
    state, copies = (3 * LAYERS + 1) * weight, (LAYERS + 1) * (weight + 4096)
    assert peaks(fit([write(made)], [8]))["batch 16"] == (
        state + copies,
        state + copies,
        state + 2 * copies,
    )


def test_the_workspace_of_cublas_does_not_grow(write):
    """Has one of forward and one of autograd's thread, as on an H100."""
    made = Training(Allocator(expandable=True), LAYERS, WEIGHT, 8 * EACH).make()
    for frames in (in_forward(71), BACKWARD):
        made.allocator.alloc(32 * MIB, frames)
    path = write(made.run(3))
    assert peaks(fit([path], [8]))["batch 16"] == 3 * (peak(16) + 64 * MIB,)
    kinds = {row.kind: row.bytes for row in report_of_highest(read_memory(path), None).kinds}
    assert kinds["workspace"] == 64 * MIB + 8 * EACH


def test_what_is_there_for_a_whole_step_is_an_interval(write):
    """A table of the user's own does not grow, an input that stays does."""
    made, table = Training(Allocator(expandable=True), LAYERS, WEIGHT, 8 * EACH), 64 * MIB
    made.allocator.alloc(table, in_main(12))
    found = fit([write(made.make().run(3))], [8])
    assert peaks(found)["batch 16"] == (peak(16) + table, peak(16) + table, peak(16) + 2 * table)
    assert found.predicted[0].assumes.endswith("but for what is there for a whole step")


def test_two_snapshots_of_equal_values_are_refused(write):
    paths = [write(training(8)), write(training(8), "b.pickle")]
    for values in ({"batches": [8, 8]}, {"contexts": [64, 64]}):
        with pytest.raises(ValueError, match=r"(8,8|64,64): snapshots of equal values tell"):
            fit(paths, **values)
    assert fit(paths, [8, 8], [64, 128]).predicted, "they differ in one value"


@pytest.mark.parametrize(
    "batches, why",
    [
        ([], "the batch of the snapshot is not known; give two snapshots"),
        ([1], "every size is a multiple of a batch of 1; give two"),
    ],
)
def test_what_cannot_be_told_says_what_to_record(write, batches, why):
    found = fit([write(training(8))], batches, memory_bytes=1 << 36)
    assert found.largest[0].assumes.startswith(f"cannot tell: {why}")
    assert found.sentence.startswith(f"The largest batch cannot be told: {why}")


def test_snapshots_of_two_programs_and_of_half_a_step_are_refused(write):
    other = write(training(8, layers=5), "b.pickle")
    why = fit([write(training(16)), other], [16, 8]).predicted[0].assumes
    told = r"cannot tell: \d+ % of the peak of .* is not in the other snapshot; give two of one"
    assert re.match(told, why)
    found = fit([write(out_of_memory(), "c.pickle")], [8])
    assert "no whole step was recorded" in found.sentence and not found.predicted


def test_a_workspace_that_one_snapshot_has_more_is_left_out(write):
    """Turns of allocations are found again behind it."""

    def made(batch: int, extra: bool) -> Training:
        found = Training(Allocator(expandable=True), LAYERS, WEIGHT, batch * EACH).make()
        found.step(0)
        if extra:
            found.allocator.alloc(MIB // 2, in_forward(70))
        return found.run(2)

    paths = [write(made(8, True)), write(made(12, False), "b.pickle")]
    found = fit(paths, [8, 12], plans=[Plan(batch=32)])
    assert peaks(found)["batch 32"] == 3 * (peak(32),)


def test_workspaces_of_other_algorithms_are_an_interval(write):
    """Backward takes workspaces for batch 12 alone, too many to find its turns."""
    own = [MIB + n * 512 for n in range(40)]

    def made(batch: int, workspaces: list[int]) -> Training:
        allocator = Allocator(expandable=True)
        weights = allocator.alloc(MIB, MAKE)
        for _ in range(3):
            saved = [allocator.alloc(batch * EACH, in_forward(71)) for _ in range(20)]
            for size in workspaces:
                allocator.release(allocator.alloc(size, BACKWARD), BACKWARD)
            gradients = [allocator.alloc(MIB, BACKWARD)]
            scratch = [allocator.alloc(size, BACKWARD) for size in (*workspaces[:2], batch * EACH)]
            for block in saved + scratch:
                allocator.release(block, BACKWARD)
            allocator.release(allocator.alloc(MIB, STEP), STEP)
            allocator.release(gradients.pop(), ZERO)
        assert weights
        return Training(allocator)

    paths = [write(made(8, [])), write(made(12, own), "b.pickle")]
    found = fit(paths, [8, 12], plans=[Plan(batch=24)])
    least = 2 * MIB + 21 * 24 * EACH
    most = least + 2 * sum(own[:2])
    assert peaks(found)["batch 24"] == (least, least + sum(own[:2]), most)
    assert found.predicted[0].assumes.endswith("but for workspaces of other algorithms")
    large = [write(made(8, [])), write(made(12, [200 * MIB] * 40), "b.pickle")]
    assert "is not in the other snapshot" in fit(large, [8, 12]).predicted[0].assumes


def kept_in_forward(
    sizes: list[int], brief: dict[int, int], scratch: int, early: Sequence[int] = ()
) -> Training:
    """Three steps whose forward keeps these sizes, made by one line; `brief` ones are in between.

    Backward has a scratch while all of them are there but for the `early` ones.
    """
    allocator = Allocator(expandable=True)
    weights = allocator.alloc(MIB, MAKE)
    for _ in range(3):
        saved = []
        for n, size in enumerate(sizes):
            saved.append(allocator.alloc(size, in_forward(71)))
            if n in brief:
                allocator.release(allocator.alloc(brief[n], in_forward(71)), in_forward(71))
        for n in early:
            allocator.release(saved[n], BACKWARD)
        saved = [block for n, block in enumerate(saved) if n not in early]
        for block in (allocator.alloc(scratch, BACKWARD), *saved):
            allocator.release(block, BACKWARD)
        allocator.release(allocator.alloc(MIB, STEP), STEP)
    assert weights
    return Training(allocator)


def test_workspaces_between_activations_of_one_line(write):
    """A convolution's; at the peak is one that another algorithm needs for one batch alone."""
    small = kept_in_forward([8 * EACH] * 9, {0: MIB, 4: MIB, 6: 3 * MIB}, MIB)
    large = kept_in_forward([12 * EACH] * 9, {1: MIB, 4: 9 * MIB, 7: MIB, 8: MIB}, 40 * MIB)
    paths = [write(small), write(large, "b.pickle")]
    found = fit(paths, [8, 12], plans=[Plan(batch=24)])
    least = MIB + 9 * 24 * EACH
    assert peaks(found)["batch 24"] == (least, least + 40 * MIB, least + 80 * MIB)
    assert found.predicted[0].assumes.endswith("but for workspaces of other algorithms")


def test_compiled_code_may_have_another_order(write):
    """Has copies of weights, which stay, as large as what an activation grows to."""
    copies, scratch = [24 * EACH] * 5 + [12 * EACH] * 5, 200 * MIB
    sizes = [[batch * EACH] * 5 for batch in (12, 24)]
    first = kept_in_forward([*copies, *sizes[0]], {}, scratch, range(10))
    second = kept_in_forward([*sizes[1], *copies[::-1]], {}, scratch, range(5, 15))
    paths = [write(first), write(second, "b.pickle")]
    found = fit(paths, [12, 24], plans=[Plan(batch=48)])
    assert peaks(found)["batch 48"] == 3 * (MIB + scratch + 5 * 48 * EACH,)


def test_sizes_that_grow_by_a_ratio_that_is_not_exact_belong_together():
    asked, theirs = np.array([5 * EACH, 10 * EACH]), np.array([22 * EACH, 11 * EACH])
    one, two = alike_in_size(np.arange(2), np.arange(2), asked, theirs, 11 / 5)
    assert sorted(zip(one.tolist(), two.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_scores_grow_as_the_square_of_the_context(write):
    def made(context: int) -> Allocator:
        allocator = Allocator(expandable=True)
        weights = allocator.alloc(MIB, MAKE)
        for _ in range(2):
            kept = [allocator.alloc(context * 4096, in_forward(71))]
            kept.append(allocator.alloc(context**2 * 64, in_forward(72)))
            gradient = allocator.alloc(MIB, BACKWARD)
            for address in kept:
                allocator.release(address, BACKWARD)
            allocator.release(allocator.alloc(512, STEP), STEP)
            allocator.release(gradient, ZERO)
        assert weights
        return allocator

    paths = [write(made(256)), write(made(512), "b.pickle")]
    found = fit(paths, contexts=[256, 512], plans=[Plan(context=1024)])
    assert peaks(found)["context 1024"] == 3 * (2 * MIB + 1024 * 4096 + 1024**2 * 64,)
    one = fit(paths[1:], [8], [512])
    assert "scores may grow as the square" in one.largest[1].assumes


BLOCKS, KEPT, OUTPUT = 4, (4 * MIB, 6 * MIB, 8 * MIB), 2 * MIB


def blocks(
    make: Frames = MAKE,
    passed_on: bool = True,
    workspaces: Sequence[int] = (),
    allocator: Allocator | None = None,
) -> Allocator:
    """Blocks with a weight of 1 MiB, which keep KEPT and their OUTPUT, the next one's input.

    With `passed_on=False` an output is freed by forward, so that no input is seen. `workspaces` are
    made by the first product of the first step, and freed by its caller behind backward.
    """
    allocator = allocator or Allocator(expandable=True)
    for _ in range(BLOCKS):
        allocator.alloc(MIB, make)
    moments: list[int] = []
    for _ in range(3):
        kept, outputs, gradients = [], [allocator.alloc(OUTPUT, in_forward(60))], []
        workspace = [allocator.alloc(n, in_forward(70)) for n in workspaces if not moments]
        for _ in range(BLOCKS):
            kept.append([allocator.alloc(n, in_forward(70 + i)) for i, n in enumerate(KEPT)])
            outputs.append(allocator.alloc(OUTPUT, in_forward(80)))
            if not passed_on:
                allocator.release(outputs.pop(), in_forward(81))
        loss = allocator.alloc(512, BACKWARD)
        for address in (outputs.pop(), loss):
            allocator.release(address, BACKWARD)
        while kept:
            gradients.append(allocator.alloc(MIB, BACKWARD))
            for address in (*kept.pop(), *outputs[-1:]):
                allocator.release(address, BACKWARD)
            del outputs[-1:]
        for address in workspace:
            allocator.release(address, in_main(42))
        moments = moments or [allocator.alloc(MIB, STATE) for _ in range(2 * BLOCKS)]
        allocator.release(allocator.alloc(MIB, STEP), STEP)
        for gradient in gradients:
            allocator.release(gradient, ZERO)
    return allocator


def test_peaks_after_other_changes(write):
    made = blocks()
    state, gathered = 3 * BLOCKS * MIB, 2 * MIB + MIB  # two blocks' weights, one's gradient
    first = OUTPUT + 512  # the first block's input, and the loss's gradient
    assert made.peak == state + BLOCKS * (sum(KEPT) + OUTPUT) + first
    found = fit([write(made)], memory_bytes=1 << 36)
    least, expected, most = peaks(found)["blocks computed again in backward"]
    # the inputs of all blocks, what one keeps that is computed again, its gradient
    assert expected == state + BLOCKS * OUTPUT + sum(KEPT) + MIB
    assert (expected - least, most - expected) == 2 * (sum(KEPT),)
    by_change = {name: expected for name, (_, expected, _) in peaks(found).items()}
    assert by_change["moments in bfloat16"] == made.peak - BLOCKS * MIB
    assert by_change["moments shared by 8 ranks (ZeRO-1)"] == made.peak - 2 * BLOCKS * MIB * 7 // 8
    shared = "whole state shared by {} ranks (fsdp)"
    assert by_change[shared.format(8)] == made.peak - state * 7 // 8 + gathered
    zero1 = by_change["moments shared by 2 ranks (ZeRO-1)"]
    assert made.peak - state // 2 + gathered > zero1, "as much would be gathered"
    assert by_change[shared.format(2)] == zero1 == made.peak - BLOCKS * MIB
    layers = found.largest[2]
    assert layers.now == BLOCKS and layers.fits == layers.may_fit
    more = fit([write(made)], plans=[Plan(layers=8), Plan(checkpointing=True, moments=True)])
    assert peaks(more)["layers 8"] == 3 * (2 * (made.peak - first) + first,)
    both = "blocks computed again in backward, moments in bfloat16"
    assert peaks(more)[both][1] == expected - BLOCKS * MIB
    unknown = fit([write(blocks(in_main(10)))], plans=[Plan(layers=8)]).predicted[0]
    assert unknown.assumes.startswith("cannot tell: the snapshot has no such allocations")


def test_a_workspace_of_the_first_product_is_no_part_of_a_block(write):
    """cuBLAS's, freed before the next step: the first block's line makes one more than others'."""
    state, first = 3 * BLOCKS * MIB, OUTPUT + 512
    for workspaces in ([5 * MIB], [5 * MIB, 3 * MIB]):
        found = fit([write(blocks(workspaces=workspaces))], plans=[Plan(layers=2 * BLOCKS)])
        whole = 2 * (state + BLOCKS * (sum(KEPT) + OUTPUT)) + first
        assert peaks(found)[f"layers {2 * BLOCKS}"] == 3 * (whole,)
        again = peaks(found)["blocks computed again in backward"][1]
        assert again == state + BLOCKS * OUTPUT + sum(KEPT) + MIB


def test_equal_requests_count_as_equal_in_blocks_of_other_sizes(write):
    """A rest that is too small to split off makes a block larger, as after empty_cache."""
    allocator = Allocator()
    gap = 6 * MIB + MIB // 2  # between other blocks: a request of 6 MiB takes it whole
    gaps, fences = [], []
    for _ in range(BLOCKS - 2):
        gaps.append(allocator.alloc(gap, in_main(9)))
        fences.append(allocator.alloc(2 * MIB, in_main(9)))
    for address in gaps:
        allocator.release(address, in_main(9))
    memory = read_memory(write(blocks(allocator=allocator)))[0]
    found = memory.replayed.allocations
    assert len(set(found.size[found.asked == KEPT[1]].tolist())) > 1
    row = fit([write(allocator)], plans=[Plan(layers=2 * BLOCKS)]).predicted[0]
    state, first = 3 * BLOCKS * MIB, OUTPUT + 512
    asked = 2 * (state + BLOCKS * (sum(KEPT) + OUTPUT)) + first + len(fences) * 2 * MIB
    assert row.least_bytes <= asked <= row.most_bytes


def test_blocks_are_alike_within_a_forward(write):
    """A last batch may be smaller; blocks that differ in one forward are no layers."""
    repeated = changed.repeated_blocks(read_memory(write(blocks()))[0], BLOCKS)
    asked = np.zeros(int(repeated.row.max()) + 1, np.int64)
    asked[repeated.row] = np.where(repeated.forward == repeated.forward[0], 2 * MIB, MIB)
    assert repeated.are_alike(asked)
    asked[repeated.row[repeated.forward_end == repeated.forward_end[0]]] *= 3
    assert not repeated.are_alike(asked)


def test_a_peak_is_between_its_bounds_where_blocks_have_rests(write):
    for row in fit([write(Training().make().run(3))], [8]).predicted:
        assert row.least_bytes <= row.peak_bytes <= row.most_bytes, row.change


def test_an_input_of_blocks_that_is_not_seen_is_expected_between_its_bounds(write):
    """Blocks keep the median of KEPT as their input, until their own backward is over."""
    found = peaks(fit([write(blocks(passed_on=False))]))["blocks computed again in backward"]
    state, again = 3 * BLOCKS * MIB, sum(KEPT)
    first = state + MIB + again  # in the last block's backward, beside the inputs
    last = state + BLOCKS * MIB + again  # in the first one's, when only its own input is left
    assert found == (last - again, first + BLOCKS * KEPT[1], first + BLOCKS * KEPT[2] + again)


@pytest.mark.parametrize(("gib", "held"), [(80, 48), (24, 8)])
def test_fsdp_gathers_as_many_blocks_as_this_trainer_would(write, gib, held):
    """All of gpt2_xl's 48 where they may stay, else those of two stretches of four."""
    model = gpt2(GPT2Keys(n_layer=48, n_head=25, n_embd=1600, block_size=64, bias=True), 512)
    keys = {"batch_size": 8, "block_size": 64, "n_head": 25}
    manifest = Manifest(1, "memory", CapturedWindow(), config=keys, model=model)
    manifest = replace(manifest, environment={"gpus": [{"memory_bytes": gib << 30}]})
    program = Program(read_memory(write(blocks()))[0], 8, 64, manifest)
    block = 12 * 1600 * 1600 + 13 * 1600
    root = 2 * 4 * (512 + 64 + 2) * 1600  # weights and gradients
    before = as_recorded(program.memory)
    gathered = program.gathered(before).expected - before.beside.expected
    assert gathered == root + (2 * held + 4 * 4) * block


def test_blocks_that_differ_or_keep_little_are_no_layers(write, monkeypatch):
    """Refuses those of a ResNet, and what compiled code seems to repeat."""
    path = write(blocks())
    for name, value, why in (
        ("ALIKE", 0.9, "the blocks of forward differ in size, so another one's is not known"),
        ("LEAST_KEPT", 1.1, "no blocks that repeat were found in forward; compiled code shows"),
    ):
        monkeypatch.setattr(changed, name, value)
        layers = fit([path], memory_bytes=1 << 36).largest[2]
        assert layers.now is None and layers.assumes.startswith(f"cannot tell: {why}")


def test_a_run_s_folder_says_batch_context_and_gpu(write, tmp_path):
    path = write(training(8), "window-1.memory.pickle")
    manifest = {"schema_version": 1, "kind": "memory", "window": {}, "files": [path.name]}
    keys = {"batch_size": 8, "block_size": 64, "n_head": 2, "attention": "flash"}
    gpus = [{"name": "GPU", "memory_bytes": 1 << 30}]
    manifest |= {"config": keys, "environment": {"gpus": gpus}}
    (tmp_path / "window-1.json").write_text(json.dumps(manifest))
    found = fit([path])
    assert found.memory_bytes == 1 << 30 and found.largest[0].now == 8
    assert found.largest[1].now == 64 and found.largest[1].fits // 8 == found.largest[0].fits


def test_report_with_fit(write, tmp_path, capsys):
    paths = [str(write(training(8))), str(write(training(12), "b.pickle"))]
    fitting = ["--fit", "--batch", "8,12", "--gpu-memory", "2GiB"]
    report.main([*paths, *fitting, "--predict", "batch=32,moments"])
    printed = capsys.readouterr().out
    assert printed.count("Batch 332 fits into 2.00 GiB") == 2, "first and last"
    assert "batch 32, moments in bfloat16" in printed and "note: Peak 1" in printed
    assert "• context: the context of the snapshot is not known" in printed
    file = tmp_path / "fit.json"
    report.main([*paths, *fitting, "--json", str(file)])
    content = json.loads(file.read_text())
    assert content["peak"]["allocated_bytes"] == peak(12)
    assert content["fit"]["largest"][0]["fits"] == 332
    report.main([*paths, "--json", str(file)])
    assert json.loads(file.read_text())["fit"] is None


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--batch", "8"], "--batch: needs --fit"),
        (["--fit", "--batch", "8,16"], "--batch 8,16: give one number for each of the snapshots"),
        (["--fit", "--gpu-memory", "80"], "80: give a size such as 80GiB"),
        (["--fit", "--batch", "0"], "0: give a number from 1 on"),
        (["--fit", "--predict", "moments,batch="], "batch=: give batch=N, a number from 1 on"),
        (["--fit", "--predict", "batch=8,batch=16"], "has batch twice; give --predict for each"),
        (["--fit", "--predict", "bacth=3"], "bacth=3: give checkpointing, moments, batch=N"),
    ],
)
def test_mistakes_in_flags(write, capsys, flags, message):
    try:
        report.main([str(write(training(8))), *flags])
        said = ""
    except (ValueError, SystemExit) as error:
        said = f"{error}{capsys.readouterr().err}"
    assert message in said


def test_fit_of_what_is_no_snapshot(tmp_path):
    with pytest.raises(ValueError, match=r"--fit: .* is no memory snapshot; record a snapshot"):
        report.main(["profiling/examples/slow_compile.sqlite.gz", "--fit"])


def test_nothing_fits_for_ever_into_a_program_that_leaks(capsys):
    leaky = str(CAPTURES / "memory" / "leaky.pickle")
    report.main([leaky, "--fit", "--gpu-memory", "80GiB", "--batch", "8"])
    assert "What fits cannot be told: more stays with each step" in capsys.readouterr().out
