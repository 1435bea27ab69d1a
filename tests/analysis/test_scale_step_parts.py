"""Parts of a step, from a capture of one GPU."""

from dataclasses import replace

import pytest

from profiling.analysis.scale.model_sizes import sizes_of
from profiling.analysis.scale.step_parts import step_parts
from tests.helpers.captures import capture_of


def test_parts_of_a_captured_step():
    capture = capture_of("flash_metrics")
    assert capture.manifest
    sizes = sizes_of(capture.manifest.described_model(), "bfloat16")
    parts = step_parts(capture, sizes)
    assert parts.step_ms == pytest.approx(capture.report.health.free_step_ms)
    assert (parts.micro_steps, parts.blocks_from) == (1, "kernels")
    # the page of this capture: forward 1.71 of kernels, backward 3.47, a block's attention 0.105
    assert parts.forward_ms == pytest.approx(1.73, abs=0.02)
    assert parts.backward_ms == pytest.approx(3.50, abs=0.02)
    assert parts.block_backward_ms == pytest.approx(0.542 * 5.40 / 5.58, abs=0.003)
    pieces = parts.head_backward_ms + 6 * parts.block_backward_ms
    assert 0.02 < parts.backward_ms - pieces < 0.3  # the embedding's
    assert 0.01 < parts.embedding_backward_ms < parts.backward_ms - pieces
    assert 0.1 < parts.update_ms < parts.rest_ms
    assert parts.squares_ms is None


def test_what_the_norm_takes_of_an_update_is_told_by_a_kernels_name():
    capture = capture_of("flash_metrics")
    assert capture.manifest
    trace, norms = capture.analysis.trace, "lpnorm_cleanup"
    names = ["adamw_squares_triton" if norms in name else name for name in trace.names]
    named = replace(capture.analysis, trace=replace(trace, names=names))
    sizes = sizes_of(capture.manifest.described_model(), "bfloat16")
    parts = step_parts(replace(capture, analysis=named), sizes)
    (kernel,) = (row for row in capture.report.kernels if norms in row.name)
    captured_ms = kernel.total_ns / capture.analysis.step_count / 1e6
    free = parts.step_ms / capture.report.window.step_ms.median
    assert parts.squares_ms == pytest.approx(captured_ms * free)
    assert parts.squares_ms < parts.update_ms


def test_blocks_by_arithmetic_where_attention_is_no_kernel_of_its_own():
    capture = capture_of("flash_metrics")
    assert capture.manifest
    assert capture.manifest.config
    shallow = replace(capture.manifest, config=capture.manifest.config | {"n_layer": 3})
    parts = step_parts(capture, sizes_of(shallow.described_model(), "bfloat16"))
    assert parts.blocks_from == "arithmetic"
    assert 0.9 < 3 * parts.block_forward_ms / parts.forward_ms < 1.0
    pieces = parts.head_backward_ms + 3 * parts.block_backward_ms
    assert parts.backward_ms - pieces == pytest.approx(parts.embedding_backward_ms)
