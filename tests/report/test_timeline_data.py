"""timeline_data: the data of a page's timeline, unpacked again."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from profiling.analysis.gpu_time.step_events import Slices, StepEvents
from profiling.report import packed
from profiling.report.single.timeline_data import TimelineData, packed_column, timeline_data
from tests.helpers.captures import capture_of

TYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}
COLUMNS = ("start", "duration", "name", "shade", "call", "phase", "operator", "geometry")


@cache
def events_of(name: str) -> StepEvents:
    found = capture_of(name).step_events
    assert found is not None
    return found


@cache
def data_of(name: str) -> TimelineData:
    return timeline_data(events_of(name), {})


def unpacked(column) -> np.ndarray:
    return np.frombuffer(packed.unpacked(column["data"]), TYPES[column["type"]])


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0, 255], "u8"), ([256], "u16"), ([2**16, 0], "u32"), ([2**32], "f64"), ([-1], "f64")],
)
def test_a_column_has_the_narrowest_type_that_holds_it(values, kind):
    column = packed_column(np.array(values))
    assert column["type"] == kind and unpacked(column).tolist() == values


@pytest.mark.parametrize("name", ["slow_eager", "flash_compile", "flash_eager.trace"])
def test_the_events_come_back_as_they_were(name):
    events, data = events_of(name), data_of(name)
    kinds = {"host": events.ranges, "call": events.calls, "phase": events.projected}
    kinds |= {"idle": events.gaps, "stream": events.operations}
    start, duration = unpacked(data["start"]), unpacked(data["duration"])
    found: dict[str, list[int]] = {kind: [] for kind in kinds}
    first = 0
    for row in data["rows"]:
        of = slice(first, first + row["count"])
        times = data["origin"] + np.cumsum(start[of].astype(np.int64)) + events.bounds_ns[0]
        found[row["kind"]] += zip(times.tolist(), duration[of].tolist(), strict=True)
        first += row["count"]
    for kind, slices in kinds.items():
        took = (slices.end_ns - slices.start_ns).tolist()
        assert sorted(found[kind]) == sorted(zip(slices.start_ns.tolist(), took, strict=True))


def test_an_operation_finds_its_call_and_geometry():
    events, data = events_of("flash_eager.trace"), data_of("flash_eager.trace")
    names, name = data["names"], unpacked(data["name"])
    calls = [row for row in data["rows"] if row["kind"] == "call"]
    assert [row["label"] for row in calls] == ["calls, thread 1", "calls, thread 2"]
    before = sum(row["count"] for row in data["rows"] if row["kind"] == "host")
    call = unpacked(data["call"]).astype(np.int64)
    labels = [names[name[before + each - 1]]["label"] for each in call[:200].tolist()]
    assert labels == [events.names[events.calls.name[e]] for e in events.launched.call[:200]]
    geometry = unpacked(data["geometry"])
    blocks = [data["geometries"][each][0] for each in geometry.tolist()]
    assert blocks == events.launched.blocks.tolist()


def test_the_data_of_an_event_is_small():
    """Data are small before they are packed; a hundred thousand events are well under 2 MB then."""
    for name in ("slow_eager", "flash_eager.trace"):
        data = data_of(name)
        columns = {column: data[column] for column in COLUMNS}  # type: ignore[literal-required]
        size = sum(len(packed.unpacked(column["data"])) for column in columns.values())
        count = sum(row["count"] for row in data["rows"])
        assert size / count <= 25
        coded = sum(len(column["data"]) for column in columns.values())
        assert coded / count * 100_000 < 1e6


def test_only_names_that_occur_are_there_and_without_control_characters():
    events = events_of("slow_eager")
    named = int(events.operations.name[0])
    names = [f"{n}\x1b[31m" if i == named else n for i, n in enumerate(events.names)]
    data = timeline_data(replace(events, names=names), {})
    held = [row["whole"] or row["label"] for row in data["names"]]
    assert len(set(held)) == len(held) and "iteration 100" in events.names
    assert "forward" in held
    assert not any("\x1b" in row["label"] + row["whole"] for row in data["names"])


def test_a_kernel_leads_to_its_sources():
    events = events_of("flash_compile")
    triton = next(name for name in events.names if name.startswith("triton_"))
    links = {triton: [("graph0", "compiled/index.html#graph0.kernel")]}
    found = [row for row in timeline_data(events, links)["names"] if row["links"]]
    assert [row["links"] for row in found] == [links[triton]]


def test_a_capture_of_hours_and_one_of_nothing_can_be_packed():
    events = events_of("flash_compile")
    empty = Slices.empty()
    unlaunched = replace(events.launched, call=np.full(len(events.launched.call), -1))
    few = {"ranges": empty, "calls": empty, "projected": empty, "waits": np.empty(0, bool)}
    nothing = timeline_data(replace(events, launched=unlaunched, **few), {})
    assert {row["kind"] for row in nothing["rows"]} == {"idle", "stream"}
    gaps = replace(events.gaps, end_ns=events.gaps.end_ns + 3 * 3600 * 10**9)
    assert timeline_data(replace(events, gaps=gaps), {})["duration"]["type"] == "f64"
