"""Ranges of which a Kineto trace holds the GPU's side alone. Called by chrome_json.

An annotation of the GPU spans, on one stream, the operations that the range of the program
launched. Where the range itself was not captured it is made of them: from the begin of the first
call that launched one to the end of the last. Without calls it has the GPU's times.
"""

import numpy as np

from profiling.timeline.reading import by_start, joined, rows_of
from profiling.timeline.trace import ANY_THREAD, Columns


def with_annotated(
    ranges: Columns | None, annotations: Columns | None, operations: Columns | None
) -> Columns | None:
    """`ranges` and those made of annotations whose names they lack.

    `operations` as `host_times` has them.
    """
    if annotations is None or operations is None:
        return ranges
    lone = annotations
    if ranges is not None:
        lone = rows_of(annotations, ~np.isin(annotations["name"], np.unique(ranges["name"])))
    made = [
        launched_ranges(rows_of(longest, longest["name"] == name), operations)
        for name in np.unique(lone["name"]).tolist()
        for longest in [on_one_stream(rows_of(lone, lone["name"] == name))]
    ]
    kept = [table for table in made if len(table["name"])]
    if ranges is not None and kept:
        kept.append({name: ranges[name] for name in kept[0]})
    return joined(kept) if kept else ranges


def on_one_stream(rows: Columns) -> Columns:
    """Of the streams of one device that which holds most of their time: others repeat it."""
    took_ns = rows["end_ns"] - rows["start_ns"]
    keys = np.stack([rows["device"], rows["stream"]], axis=1)
    places, which = np.unique(keys, axis=0, return_inverse=True)
    longest = np.argmax(np.bincount(which.ravel(), took_ns, len(places)))
    return by_start(rows_of(rows, which.ravel() == longest))


def launched_ranges(rows: Columns, operations: Columns) -> Columns:
    """Of annotations on one stream."""
    of = operations["stream"] == rows["stream"][0]
    of &= operations["device"] == rows["device"][0]
    inside = rows_of(operations, of)
    first = np.searchsorted(inside["start_ns"], rows["start_ns"], side="left")
    last = np.searchsorted(inside["start_ns"], rows["end_ns"], side="left")
    held = np.flatnonzero(last > first)
    spans = [slice(first[i], last[i]) for i in held.tolist()]
    length = len(held)
    process = [int(inside["process"][span][0]) for span in spans]
    begins = [int(inside["begun_ns"][span].min()) for span in spans]
    ends = [int(inside["returned_ns"][span].max()) for span in spans]
    return {
        "start_ns": np.array(begins, np.int64),
        "end_ns": np.array(ends, np.int64),
        "closed": np.ones(length, bool),
        "name": rows["name"][held],
        "process": np.array(process, np.int64),
        "thread": np.full(length, ANY_THREAD, np.int64),
    }


def host_times(operations: Columns | None, calls: Columns | None) -> Columns | None:
    """With `begun_ns` and `returned_ns` of the launching call, the operation's own without one."""
    if operations is None:
        return None
    begun_ns, returned_ns = operations["start_ns"].copy(), operations["end_ns"].copy()
    process = operations.get("process", np.full(len(begun_ns), -1))
    kept = np.ones(len(begun_ns), bool)
    if calls is not None and "call" in operations:
        kept = operations["call"] >= 0
        call = operations["call"][kept]
        begun_ns[kept], returned_ns[kept] = calls["start_ns"][call], calls["end_ns"][call]
    found = operations | {"begun_ns": begun_ns, "returned_ns": returned_ns, "process": process}
    return rows_of(found, kept)
