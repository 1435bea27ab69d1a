"""Reports on memory snapshots find what is planted in them."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.memory.analysis import memory_report
from profiling.analysis.memory.device_memory import read_memory
from profiling.analysis.memory.layout import Segment, frees_for
from profiling.analysis.memory.memory_records import Place
from profiling.analysis.memory.replay import rounded
from profiling.analysis.memory.sentence import AUTOGRAD, sentence
from profiling.report.memory.document import ALONE, LIMITED, tips
from profiling.timeline.memory_snapshot import Settings
from tests.helpers.memory_snapshots import (
    MIB,
    MODULE,
    SITE,
    Allocator,
    OutOfMemory,
    Training,
    frame,
    in_main,
    out_of_memory,
    pickled,
    snapshot_of,
)


@pytest.fixture
def report(tmp_path):
    def made(training: Training, **snapshot):
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(pickled(training.snapshot() | snapshot))
        found = memory_report([path])
        assert sum(row.bytes for row in found.kinds) == found.at.allocated_bytes
        assert sum(row.bytes for row in found.lines) == found.at.allocated_bytes
        assert sum(row.bytes for row in found.modules) == found.at.allocated_bytes
        return found

    return made


def line(place) -> str | None:
    return place.line and place.line.rpartition("/")[2]


@pytest.mark.parametrize("cpp", [False, True])
@pytest.mark.parametrize("expandable", [False, True])
def test_the_peak_and_its_kinds(report, cpp, expandable):
    training = Training(Allocator(expandable=expandable), cpp=cpp).make().run(4)
    found = report(training)
    assert found.answer == "peak" and found.reaches_back
    assert found.peak.allocated_bytes == training.allocator.peak  # max_memory_allocated
    assert found.peak.reserved_bytes == sum(training.allocator.segments.values())
    assert (found.peak.phase, found.peak.step) == ("backward", 1)
    held = {row.kind: row.bytes for row in found.kinds}
    assert held["moments"] == pytest.approx(2 * held["weights"], rel=0.02)  # rests of blocks
    assert held["activations"] == 8 * training.activation
    assert {"gradients", "workspace"} < {*held} and "unknown" not in held
    by_line = {line(row.place): row.kind for row in found.lines}
    assert (
        by_line.items()
        >= {
            "train.py:10": "weights",
            "train.py:44": "moments",
            "model.py:88": "activations",
        }.items()
    )
    assert len(found.steps) == 4 and found.steps_from.startswith("by the ranges Optimizer.step")
    assert found.sentence.startswith("Peak 120") and "of step 1: 40 % moments" in found.sentence


def test_steps_are_told_by_stacks_where_no_range_is(report):
    found = report(Training().make().run(3), external_annotations=[])
    assert [step.step for step in found.steps] == [0, 1, 2]
    assert found.steps_from == "by the stacks of the optimizer"
    events = Training().make().run(3).allocator.events
    ends = [{"stage": "START", "name": f"iteration {n}", "device": 0} for n in (7, 8)]
    times = [{"time_us": events[n]["time_us"]} for n in (100, 300)]
    marks = [end | time for end, time in zip(ends, times, strict=True)]
    found = report(Training().make().run(3), external_annotations=marks)
    assert [step.event for step in found.steps] == [99, 299]
    assert found.steps_from == "by the ranges iteration 7"
    ends = [mark | {"stage": "END"} for mark in marks]  # the last step is one only by its end
    ends[1]["time_us"] += 350
    found = report(Training().make().run(3), external_annotations=[*marks, *ends])
    assert [step.event for step in found.steps] == [99, 349]
    assert [row.phase for row in found.phases] == ["forward", "backward", "optimizer"]


def test_a_history_that_begins_late(report):
    """Weights and moments are told from each other by their sizes, and the peak is a bound."""
    training = Training().make()
    training.allocator.recording = False
    training.run(2)
    training.allocator.recording = True
    training.run(2)
    del training.allocator.events[:60]  # what a ring buffer lost
    found = report(training)
    assert not found.reaches_back and "at least" in found.notes[0]
    held = {row.kind: row.bytes for row in found.kinds}
    assert held["moments"] == pytest.approx(2 * held["weights"], rel=0.02)
    assert "told by sizes" in found.notes[1]


def test_blocks_take_the_rest_of_a_free_one(report):
    """PyTorch counts blocks: a rest of up to 1 MiB is not split off."""
    allocator = Allocator()
    training = Training(allocator, layers=1)
    for asked in (12 * MIB, 12 * MIB - 600_000, 11 * MIB + 700):
        address = allocator.alloc(asked, [])
        allocator.release(address, [])
    allocator.alloc(512, [])
    assert allocator.peak == 12 * MIB
    assert report(training).peak.allocated_bytes == allocator.peak
    settings = Settings(roundup_power2_divisions={1: 4, 256: 8})
    sizes = [MIB + 1, 300 * MIB, 700]
    assert rounded(np.array(sizes), settings).tolist() == [
        MIB + MIB // 4,
        320 * MIB,
        1024,
    ]


def test_events_that_are_missing_leave_the_peak_open(report):
    """More would be allocated than is reserved, or other blocks lie there than at the end."""
    training = Training().make().run(2)
    events = [e for e in training.allocator.events if not str(e["action"]).startswith("free")]
    for left in (events, [e | {"size": 9 * e["size"]} for e in training.allocator.events]):
        found = report(training, device_traces=[left])
        assert not found.reaches_back and "events are missing" in found.notes[0]


def test_a_leak_and_its_line(report):
    found = report(Training(leak=2 * MIB).make().run(6))
    assert found.answer == "leak"
    (leak,) = found.leaks
    assert line(leak.place) == "train.py:55" and leak.bytes_per_step == 2 * MIB
    assert found.sentence.startswith("train.py:55 (main) keeps 2.0 MiB more with each step")
    assert report(Training(leak=2 * MIB).make().run(3)).answer == "peak"  # too few to tell
    training = Training(leak=2 * MIB).make().run(6)
    for address in training.kept:  # freed where the program ends
        training.allocator.release(address, in_main(57))
    assert report(training).leaks[0].kind == "unknown"
    others = found.leaks + [replace(leak, bytes_per_step=MIB)] * 2
    assert "with each step, 2 other lines 2.0 MiB. Peak" in sentence(replace(found, leaks=others))


def test_the_line_with_most_is_named_where_most_has_none(report):
    found = report(Training(activation=MIB // 2, weight=4 * MIB, cpp=True).make().run(3))
    autograd, *others = found.lines
    kinds = [replace(found.kinds[0], kind="workspace", percent=60.0)]
    autograd = replace(autograd, place=Place(None, AUTOGRAD, False), kind="workspace")
    other = replace(others[0], place=Place("a/model.py:7", "forward", True), percent=33.0)
    said = sentence(replace(found, kinds=kinds, lines=[autograd, other]))
    assert said.endswith(
        "60 % workspace, most from threads of autograd; the line with most is model.py:7 "
        "(forward), 33 %"
    )


def test_a_leak_of_more_steps_than_are_looked_at(report):
    (leak,) = report(Training(layers=1, leak=MIB).make().run(900)).leaks
    assert leak.bytes_per_step == MIB


def test_fragmentation_and_what_holds_it(report):
    found = report(Training(activation=24 * MIB).fragment(30).make().run(3))
    assert found.answer == "fragmented" and found.sentence.startswith("Fragmented: 5")
    assert "for an allocation, between blocks of train.py:66 (main). Peak" in found.sentence
    assert line(found.pinned[0].place) == "train.py:66"
    assert found.pinned[0].inactive_bytes <= found.tightest.inactive_bytes
    assert report(Training(activation=24 * MIB).make().run(3)).answer == "peak"


@pytest.mark.parametrize("expandable", [False, True])
def test_what_is_free_and_of_use_is_no_fragmentation(report, expandable):
    """Small blocks need a segment of their own when all large ones are free, and so do pages."""
    training = Training(Allocator(expandable=expandable), activation=24 * MIB).make().run(3)
    fillers = [training.allocator.alloc(40 * MIB, in_main(65)) for _ in range(8)]
    for address in fillers:
        training.allocator.release(address, in_main(67))
    training.kept = [training.allocator.alloc(MIB, in_main(66)) for _ in range(4)]
    found = report(training)
    assert found.answer == "peak" and not found.stranded_bytes
    if expandable:  # between blocks, too
        assert report(training.fragment(30).run(1)).answer == "peak"


def test_fsdp_allocates_for_the_collective_that_asks(report):
    """Says gradients of what a reduction makes, weights of what is gathered."""
    file = f"{SITE}/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"
    training = Training().make().run(1)
    for size, asks in ((96 * MIB, "foreach_reduce"), (80 * MIB, "foreach_all_gather")):
        frames = in_main(41, frame(file, 59, "allocate"), frame(file, 600, asks))
        training.kept.append(training.allocator.alloc(size, frames))
    kinds = {(row.bytes, row.kind) for row in report(training).largest}
    assert {(96 * MIB, "gradients"), (80 * MIB, "weights")} <= kinds


def test_out_of_memory_and_what_would_have_sufficed(report):
    training = out_of_memory()
    found = report(training)
    failed = found.out_of_memory
    assert found.answer == "out_of_memory" and failed.asked_bytes == 24 * MIB
    assert line(failed.place) == "model.py:71" and failed.gpu_free_bytes == 8 * MIB
    assert failed.enough and [free.kind for free in failed.frees] == ["activations"]
    assert found.sentence.startswith("Out of memory at model.py:71 (forward): 24.0 MiB were asked")
    assert not failed.is_limited and "left on the GPU" not in found.sentence
    small = replace(failed, gpu_free_bytes=18 * MIB, asked_bytes=4 * MIB)
    assert not small.is_limited, "the allocator asks for 20 MiB"
    assert replace(small, gpu_free_bytes=20 * MIB).is_limited
    limited = replace(failed, gpu_free_bytes=32 * MIB, asked_bytes=found.at.allocated_bytes + 1)
    assert tips(replace(found, out_of_memory=limited)) == [ALONE]
    limited = replace(found, out_of_memory=replace(limited, gpu_free_bytes=1 << 40))
    assert tips(limited) == [LIMITED, ALONE]
    assert "allocated and 1024.00 GiB left on the GPU: " in sentence(limited)


MODEL = """class Block(nn.Module):
    def __init__(self):
        self.attention = Attention()

    def forward(self, x):
        return self.attention(x)


class Attention(nn.Module):
    def __init__(self):
        self.product = nn.Linear(8, 8)

    def forward(self, x):
        return softmax(self.product(x))
"""


def test_modules_are_told_by_the_source_or_by_the_line_that_called_them(tmp_path, report):
    """A class has what its forward and its making allocate; a Function of autograd is none."""
    file = str(tmp_path / "model.py")
    linear, call = f"{SITE}/torch/nn/modules/linear.py", frame(MODULE, 1784, "_call_impl")
    block = [frame(file, 6, "forward"), call]
    attention = [frame(file, 14, "forward"), call, *block]
    making = [
        frame(linear, 100, "__init__"),
        frame(file, 11, "__init__"),
        frame(file, 3, "__init__"),
    ]
    apply = frame(f"{SITE}/torch/autograd/function.py", 581, "apply")
    of_frames = {
        "made": in_main(9, *making),
        "softmax": in_main(9, *attention),
        "product": in_main(9, frame(linear, 134, "forward"), call, *attention),
        "function": in_main(9, frame("/lib/mine.py", 3, "forward"), apply, *attention),
        "alone": in_main(9, frame(linear, 134, "forward"), call),
        "no module": in_main(9, frame("/home/me/trainer.py", 2, "__init__")),
    }
    training = Training()
    for number, frames in enumerate(of_frames.values(), 1):
        training.allocator.alloc(number * MIB, frames)

    def sizes():
        rows = report(training).modules
        return {(row.module, row.told_by): row.bytes // MIB for row in rows}

    assert sizes() == {
        ("outside of modules", "none"): 6,
        ("torch.nn linear at train.py:9", "call"): 5,
        ("called at model.py:6", "call"): 6,
        ("called at model.py:6 > torch.nn linear", "call"): 3,
        ("made at model.py:3 > torch.nn linear", "call"): 1,
    }
    (tmp_path / "model.py").write_text(MODEL)
    assert sizes() == {
        ("outside of modules", "none"): 6,
        ("torch.nn linear at train.py:9", "call"): 5,
        ("Attention of model.py", "source"): 6,
        ("Attention of model.py > torch.nn linear", "source"): 4,
    }


def test_lines_behind_the_largest_are_one_row(report):
    training = Training()
    for number in range(230):
        training.allocator.alloc(MIB + 512 * number, in_main(number + 1))
    found = report(training)
    assert len(found.lines) == 201 and found.lines[-1].place.function == "30 other lines"
    assert found.lines[-1].allocations == 30


def test_code_that_is_not_the_user_s_is_the_same_as_in_captures(report):
    """A kernel of this trainer counts for the line of its model that calls it."""
    training, root = Training(), "/home/me/nano/"
    kernel = [frame(f"{root}kernels/linear.py", 5, "apply"), frame(f"{root}model.py", 7, "forward")]
    training.allocator.alloc(2 * MIB, [*kernel, frame(f"{root}training/step/step.py", 9, "step")])
    assert line(report(training).lines[0].place) == "model.py:7"


def test_fewest_blocks_make_room_and_those_that_pass_come_first():
    """Two neighbours fit together; of pairs that fit, one without a weight is chosen."""
    size, kind = np.array([4, 4, 4, 4, 9]), np.array([0, 3, 3, 0, 0])
    together = Segment(0, 20, np.array([0, 1, 2, 3]), np.array([0, 0, 2, 0, 2]))
    alone = Segment(30, 39, np.array([4]), np.array([0, 0]))
    assert frees_for(9, [together], kind, size) == ([1, 2], True)
    assert frees_for(9, [together, alone], kind, size) == ([4], True)
    assert frees_for(99, [together, alone], kind, size) == ([4, 0, 1], False)
    assert frees_for(9, [], kind, size) == ([], False)


def test_what_would_have_sufficed_with_expandable_segments(report):
    training = Training(Allocator(limit=300 * MIB, expandable=True), 12, activation=24 * MIB)
    with pytest.raises(OutOfMemory):
        training.make().run(2)
    failed = report(training).out_of_memory
    assert failed.enough and len(failed.frees) == 1 and "expandable" in failed.assumed


def test_without_a_history(report, tmp_path):
    training = Training().make().run(2)
    found = report(training, device_traces=[[]])
    assert found.answer == "state" and found.peak is None and found.curve is None
    assert found.at.allocated_bytes == training.allocator.allocated
    assert {row.kind for row in found.kinds} == {"weights", "moments"}
    assert "_record_memory_history() before the steps" in found.notes[0], "how to know the peak"
    training.allocator.used = {k: (*v[:2], []) for k, v in training.allocator.used.items()}
    with pytest.raises(ValueError, match="no history was recorded.*_record_memory_history"):
        report(training, device_traces=[[]])


def test_several_devices_and_ranks(tmp_path):
    small, large = (Training(Allocator(device=n), layers=4 + 4 * n).make().run(2) for n in (0, 1))
    path = tmp_path / "window-rank0.memory.pickle"
    path.write_bytes(pickled(snapshot_of([small.allocator, large.allocator])))
    other = tmp_path / "window-rank1.memory.pickle"
    other.write_bytes(pickled(small.snapshot()))
    found = memory_report([path, other])
    assert found.device == 1 and found.peak.allocated_bytes == large.allocator.peak
    rows = [(row.rank, row.device, row.peak_bytes) for row in found.devices]
    assert rows == [
        (0, 0, small.allocator.peak),
        (0, 1, large.allocator.peak),
        (1, 0, small.allocator.peak),
    ]
    assert memory_report([path], device=0).device == 0
    with pytest.raises(ValueError, match="--device 7: the snapshot has 0, 1"):
        memory_report([path], device=7)


def test_a_long_history_is_drawn_in_few_points_and_keeps_its_peak(tmp_path):
    training = Training().make().run(150)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickled(training.snapshot()))
    (memory,) = read_memory(path)
    assert memory.count > 10_000
    curve = memory_report([path]).curve
    assert len(curve.event) <= 4002 and max(curve.allocated_bytes) == training.allocator.peak
    assert replace(curve, ms=None).event == sorted(curve.event)
