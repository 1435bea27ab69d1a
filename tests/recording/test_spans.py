"""Ranges of a run as a tool sees them: an NVTX library of the tests' own listens."""

import json

import pytest
import torch

from configs.profiling import ProfileConfig
from kernels.fused_model import make_model
from profiling.recording.layers import layer_ranges
from profiling.recording.spans import NOTHING, NoSpans, Spans, spans_for

ALL = dict(device="cpu", max_iters=8, eval_interval=8, log_interval=4)


def tree(events: list[list[str]]) -> list[tuple[int, str, int]]:
    """(depth, name, payload) of each range, and (depth, call, -1) of the CUDA runtime's."""
    found, depth = [], 0
    for kind, *fields in events:
        if kind == "push":
            domain, name, _, payload = fields
            assert domain == "nanogpt"
            found.append((depth, name, int(payload)))
        elif kind.startswith("cuda"):
            found.append((depth, kind, -1))
        depth += {"push": 1, "pop": -1}.get(kind, 0)
        assert depth >= 0
    assert depth == 0, "a range was left open"
    return found


def iteration(number: int, micro_steps: int = 1) -> list[tuple[int, str, int]]:
    """The ranges that an iteration is to have: (depth, name, number of the iteration)."""
    inner = ["data", "forward", "backward"]
    names = [(0, f"iteration {number}")]
    for micro_step in range(micro_steps):
        if micro_steps > 1:
            names += [(1, f"micro_step {micro_step}")] + [(2, name) for name in inner]
        else:
            names += [(1, name) for name in inner]
    names += [(1, "optimizer"), (2, "clip")]
    return [(depth, name, number) for depth, name in names]


@pytest.mark.slow
@pytest.mark.parametrize("micro_steps", [1, 2])
def test_every_range_of_a_run(events_of, tmp_path, micro_steps):
    keys = {"profile": "nsys", "profile.start": 2, "profile.steps": 3}
    events = events_of(gradient_accumulation_steps=micro_steps, **ALL, **keys)
    expected = [(0, "evaluate", 0)]
    for number in range(8):
        expected += [(0, "cudaProfilerStart", -1)] if number == 2 else []
        expected += iteration(number, micro_steps)
        expected += [(0, "cudaProfilerStop", -1)] if number == 4 else []
        expected += [(0, "log", number)] if number % 4 == 0 else []
    assert tree(events) == [*expected, (0, "evaluate", 8), (0, "checkpoint", 8)]
    colors = {}
    for kind, *fields in events:
        if kind == "push":
            colors.setdefault(fields[1], set()).add(fields[2])
    assert all(len(seen) == 1 for seen in colors.values())
    phases = ("data", "forward", "backward", "optimizer", "clip", "evaluate", "log")
    assert len(set.union(*(colors[name] for name in phases))) == len(phases)
    assert "nsys is not attached" in events_of.output and "python -m profiling run" in (
        events_of.output
    )
    manifest = json.loads((tmp_path / "out" / "profile" / "window-1.json").read_text())
    assert manifest["return_codes"] == {"cudaProfilerStart": 0, "cudaProfilerStop": 0}
    assert manifest["nsys_attached"] is False and manifest["backward_on_calling_thread"] is True


@pytest.mark.slow
def test_an_exception_closes_ranges_and_window(events_of, tmp_path):
    """The loss becomes NaN while the window is open: found, and raised, inside the range log."""
    keys = {"profile": "nsys", "profile.start": 0, "profile.steps": 8}
    answers = {"CUDART_ANSWER": "5"}
    events = tree(events_of(1, answers, learning_rate=1e30, **{**ALL, "log_interval": 1}, **keys))
    assert events[-1] == (0, "cudaProfilerStop", -1) and events[-2][1] == "log"
    assert [event[1] for event in events].count("cudaProfilerStop") == 1
    manifest = json.loads((tmp_path / "out" / "profile" / "window-1.json").read_text())
    assert manifest["window"]["complete"] is False
    assert manifest["window"]["ended_by"].startswith("SystemExit: train.py: training loss is nan")
    assert manifest["return_codes"] == {"cudaProfilerStart": 5, "cudaProfilerStop": 5}
    assert "cudaProfilerStart returned 5" in events_of.output


@pytest.mark.slow
def test_without_profile_no_range_is_pushed(events_of):
    assert events_of(**ALL) == []


def test_off_is_one_object_that_does_nothing():
    spans = spans_for("none")
    assert isinstance(spans, NoSpans)
    assert spans.phase("data") is spans.iteration(3) is spans.micro_step(1, of=2) is NOTHING


def test_an_unknown_phase_is_a_bug():
    with pytest.raises(KeyError):
        Spans().phase("forwards")


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_exception_inside_a_layer_closes_all_ranges(config, where):
    made = config(attention="slow")
    model, spans = make_model(made, 13), Spans()

    def fail(*_):
        raise RuntimeError("as asked")

    handle = {
        "forward": model.transformer.h[1].mlp.gelu.register_forward_hook,
        "backward": model.transformer.h[1].mlp.gelu.register_full_backward_hook,
    }[where](fail)
    x = torch.zeros(2, 8, dtype=torch.long)
    with layer_ranges(model, spans):
        with pytest.raises(RuntimeError, match="as asked"), spans.phase(where):
            model(x, x)[1].backward()
        assert spans.open == []
        handle.remove()
        model(x, x)[1].backward()
    assert spans.open == []
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    assert not [m for m in model.modules() for name in hooks if getattr(m, name)]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_to_no_code")
def test_compiled_graphs_are_the_same_with_ranges(run, tmp_path):
    """Ranges go around the compiled call: no more graphs and no break with them."""
    from torch._dynamo.utils import counters  # as long to import as all of torch

    found = {}
    for kind in ("none", "torch"):
        out_dir = run(
            compile=True,
            max_iters=4,
            out_dir=str(tmp_path / kind),
            profile=ProfileConfig(kind=kind, start="2", steps=2),
        )
        summary = json.loads((out_dir / "summary.json").read_text())
        found[kind] = (
            summary["compile/graphs"],
            summary["compile/graph_breaks"],
            counters["stats"]["unique_graphs"],
            sum(counters["graph_break"].values()),
        )
    assert found["none"] == found["torch"] == (1, 0, 1, 0)
    manifest = json.loads((out_dir / "profile" / "window-1.json").read_text())
    assert manifest["compiled_inside"] == {"graphs": 0, "graph_breaks": 0}
    assert manifest["compile"]["graphs"] == 1
