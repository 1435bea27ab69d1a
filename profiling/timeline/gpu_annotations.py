"""Ranges of which a Kineto trace holds the GPU's side alone. Called by chrome_json.

An annotation of the GPU spans, on one stream, the operations that a range of the program launched.
Where the range itself was not captured, it is made from these operations: it lasts from the begin
of the first call that launched one to the end of the last. Without calls it has the GPU's times.
"""

import numpy as np

from profiling.timeline.reading import join_tables, rows_of, sort_by_start
from profiling.timeline.trace import ANY_THREAD, Columns


def add_annotated_ranges(
    ranges: Columns | None, annotations: Columns | None, operations: Columns | None
) -> Columns | None:
    """`ranges`, and ranges made from the annotations whose names are not among theirs.

    `operations` are the result of `host_times`.
    """
    if annotations is None or operations is None:
        return ranges
    missing = annotations
    if ranges is not None:
        missing = rows_of(annotations, ~np.isin(annotations["name"], np.unique(ranges["name"])))
    made = [
        ranges_on_host(on_busiest_stream(rows_of(missing, missing["name"] == name)), operations)
        for name in np.unique(missing["name"]).tolist()
    ]
    kept = [table for table in made if len(table["name"])]
    if ranges is not None and kept:
        kept.append({name: ranges[name] for name in kept[0]})
    return join_tables(kept) if kept else ranges


def on_busiest_stream(rows: Columns) -> Columns:
    """The rows on the stream, of one device, that has most of their time; others repeat them."""
    took_ns = rows["end_ns"] - rows["start_ns"]
    keys = np.stack([rows["device"], rows["stream"]], axis=1)
    places, which = np.unique(keys, axis=0, return_inverse=True)
    longest = np.argmax(np.bincount(which.ravel(), took_ns, len(places)))
    return sort_by_start(rows_of(rows, which.ravel() == longest))


def ranges_on_host(rows: Columns, operations: Columns) -> Columns:
    """Ranges on the host for annotations on one stream; one without operations is left out."""
    on_stream = operations["stream"] == rows["stream"][0]
    on_stream &= operations["device"] == rows["device"][0]
    inside = rows_of(operations, on_stream)
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
    """The operations with `begun_ns` and `returned_ns`, the times of the call that launched each.

    Where no calls were captured, these are the operation's own times; where some were, operations
    without one are left out.
    """
    if operations is None:
        return None
    begun_ns, returned_ns = operations["start_ns"].copy(), operations["end_ns"].copy()
    process = operations.get("process", np.full(len(begun_ns), -1))
    kept = np.ones(len(begun_ns), bool)
    if calls is not None and "call" in operations:
        kept = operations["call"] >= 0
        call = operations["call"][kept]
        begun_ns[kept], returned_ns[kept] = calls["start_ns"][call], calls["end_ns"][call]
    timed = operations | {"begun_ns": begun_ns, "returned_ns": returned_ns, "process": process}
    return rows_of(timed, kept)
