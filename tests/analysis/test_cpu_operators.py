"""Traits that the operators of a run without a GPU share, and the advice that follows."""

from dataclasses import replace

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.records import ProgramSteps
from profiling.analysis.summary import summarize
from profiling.shared.manifest import ProcessUse
from profiling.timeline.opening import open_capture
from tests.helpers.captures import event, write_trace
from tests.helpers.reports import MANIFEST as OF_GPU

MANIFEST = replace(OF_GPU, device="cpu", config=None, attention=None, environment={"cpu_cores": 8})
STEPS = 4


@pytest.fixture
def bottleneck_of(tmp_path):
    """The bottleneck of steps of 10 ms: forward, backward, and 6 ms of an optimizer.

    `rows` are operators of the optimizer: (name, us, count).
    """

    def bottleneck(rows, process=None, inputs=None, kind="Adam"):
        events = []
        for number in range(STEPS):
            at = 1000.0 + number * 10_000
            events += [
                event("user_annotation", f"iteration {number}", at, 10_000),
                event("user_annotation", "forward", at, 2000),
                event("cpu_op", "aten::linear", at, 2000),
                event("user_annotation", "backward", at + 2000, 2000),
                event("cpu_op", "aten::mm", at + 2000, 2000),
                event("user_annotation", "optimizer", at + 4000, 6000),
                event("user_annotation", f"Optimizer.step#{kind}.step", at + 4000, 6000),
            ]
            at += 4000
            for name, us, count in rows:
                events += [event("cpu_op", name, at + i * us, us) for i in range(count)]
                at += us * count
        trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
        analysis = Analysis(open_capture(write_trace(tmp_path / "x.trace.json", trace)))
        seen = inputs and ProgramSteps("", 9, 0, None, None, None, {}, inputs, [])
        manifest = replace(MANIFEST, process=process)
        return summarize(analysis, manifest, program_steps=seen).bottleneck

    return bottleneck


def test_an_optimizer_that_goes_one_by_one_and_its_small_operators_are_told(bottleneck_of):
    bottleneck = bottleneck_of([("aten::add_", 3, 2000)])
    assert any("2,002 calls per step of 5.0 us" in line for line in bottleneck.evidence)
    assert "fused=True" in bottleneck.next[0] and "Join small operators" in bottleneck.next[1]
    assert bottleneck.most_to_gain.startswith("fewer and larger operators, at most 10.0")
    assert "fused=True" not in " ".join(bottleneck_of([("aten::add_", 3, 2000)], kind="LBFGS").next)
    fused = bottleneck_of([("aten::_fused_adamw_", 6000, 1)])
    assert not any(re in " ".join(fused.next) for re in ("fused=True", "small operators"))
    assert fused.most_to_gain.startswith("aten::_fused_adamw_, at most 6.00")


def test_copies_and_dense_gradients_of_embeddings_have_advice(bottleneck_of):
    copies = bottleneck_of([("aten::copy_", 2000, 1), ("aten::_fused_adam_", 4000, 1)])
    assert "one memory layout" in copies.next[0]
    assert any(line.startswith("Copies of tensors") for line in copies.evidence)
    dense = bottleneck_of(
        [("aten::embedding_dense_backward", 2000, 1), ("aten::_fused_adam_", 4000, 1)]
    )
    assert any("whole table take 2.00 of 10.00 ms" in line for line in dense.evidence)
    assert "sparse=True" in dense.next[0] and "layout" not in " ".join(dense.next)


def test_a_compiled_program_is_not_told_to_compile(bottleneck_of):
    fused = ("aten::_fused_adam_", 5000, 1)
    assert any("torch.compile" in line for line in bottleneck_of([fused]).next)
    compiled = bottleneck_of([fused, ("## Call CompiledFxGraph f1 ##", 1000, 1)])
    assert "torch.compile" not in " ".join(compiled.next)


def test_more_threads_than_cores_are_told_first(bottleneck_of):
    fused = [("aten::_fused_adam_", 6000, 1)]
    bottleneck = bottleneck_of(fused, ProcessUse(cores_used=1.0, compute_threads=48))
    assert bottleneck.evidence[0] == "PyTorch computes with 48 threads on 8 cores."
    assert "torch.set_num_threads(8)" in bottleneck.next[0]
    assert bottleneck.most_to_gain is None  # no single operator is the reason
    assert "threads on" not in bottleneck_of(fused, ProcessUse(compute_threads=8)).evidence[0]


def test_inputs_of_float64_are_told(bottleneck_of):
    fused = [("aten::_fused_adam_", 6000, 1)]
    bottleneck = bottleneck_of(fused, inputs=["float64:8x128"])
    assert "float64" in bottleneck.evidence[0] and "model.float()" in bottleneck.next[0]
    assert "float64" not in " ".join(bottleneck_of(fused, inputs=["float32:8x128"]).evidence)


def test_attention_that_is_written_out_has_advice(bottleneck_of):
    rows = [("aten::bmm", 1500, 1), ("aten::_softmax", 2000, 1), ("aten::bmm", 1500, 1)]
    fused = [("aten::_fused_adam_", 1000, 1)]
    written = bottleneck_of(rows + fused)
    assert "F.scaled_dot_product_attention" in written.next[0]
    assert any("its softmax alone takes 2.00 of" in line for line in written.evidence)
    ran = [("aten::_scaled_dot_product_flash_attention_for_cpu", 5000, 1)]
    assert "attention" not in " ".join(bottleneck_of(ran + fused).next)
