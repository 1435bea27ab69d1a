"""Results of `scale` for a capture: predictions, and what they assume."""

from dataclasses import replace

import pytest

from benchmarks.fleet.simulation import Fleet
from profiling.analysis.runs.run_clocks import RunClocks
from profiling.analysis.scale.prediction import MODES
from profiling.analysis.scale.scale import (
    COPIES_SLOWDOWN_PERCENT,
    SLOWDOWN_PERCENT,
    Request,
    scale,
    slowdown_of,
)
from profiling.analysis.scale.scale_records import LinkSpeed, Slowdown
from profiling.shared.json_records import to_json
from tests.helpers.captures import capture_of
from tests.helpers.fleet import report_of, write_fleet
from tests.helpers.scale import FUSED, scale_capture


@pytest.mark.parametrize("percent, said", [(97.0, True), (12.0, False)])
def test_a_clock_at_its_power_limit_is_assumed_to_stay(percent, said):
    rows = {"gpu/sm_clock_mhz": 1573.0, "gpu/throttle_power_percent": percent}
    limited = replace(capture_of("flash_eager.trace"), clocks=RunClocks(rows))
    found = scale(limited, Request((1, 4), 8)).assumed
    at_the_limit = "the GPU's clock stays as it was, 1573 MHz, throttled by its power limit 97 %"
    assert any(each.startswith(at_the_limit) for each in found) == said


def test_what_is_assumed_is_said():
    result = scale(capture_of("flash_eager.trace"), Request((1, 4), 8))
    said = " ".join(result.assumed)
    assert "data sheet" in said and "--slowdown" in said and "activations were not measured" in said
    assert result.network is None
    assert (result.slowdown.percent, result.slowdown.source) == (SLOWDOWN_PERCENT, "assumed")
    assert "compute takes 100 % longer during a collective" in said and "(--host-ms)" in said
    given = LinkSpeed(300.0, 300.0, 300.0, "given", "--link")
    asked = Request((1, 4), 8, link=given, slowdown_percent=5.0, host_step_ms=30.0)
    said = " ".join(scale(capture_of("flash_eager.trace"), asked, peak_bytes=2 * 10**9).assumed)
    assert "data sheet" not in said and "--slowdown" not in said and "--host-ms" not in said
    assert "activations take as much memory as in the measured run" in said
    assert to_json(result)


def test_weights_stay_where_the_captured_gpu_has_room_for_them():
    capture, asked = capture_of("flash_eager.trace"), Request((1, 2), 8, ("fsdp",), micro_steps=3)
    report = capture.plain_report
    assert report.capture.gpu
    facts = replace(report.capture, devices=[replace(report.capture.gpu, memory_bytes=64 << 20)])
    small = replace(capture)
    vars(small)["plain_report"] = replace(report, capture=facts)
    (_, kept), (_, sent) = (scale(each, asked).predictions for each in (capture, small))
    assert sent.sent_bytes > kept.sent_bytes


def test_predictions_tell_whether_rows_travel():
    asked = Request((1, 2, 4), 8, ("ddp", "fsdp"))
    result = scale_capture(asked)
    rows = {(row.gpus, row.mode): row.embedding_rows for row in result.predictions}
    assert [key for key, travel in rows.items() if travel] == [(2, "ddp")]
    saved = f"{result.measured.embedding_backward_ms:.2f} ms of backward"
    assert "ddp on up to 2 GPUs the embedding's gradient is sent" in " ".join(result.assumed)
    assert saved in " ".join(result.assumed)
    table = 4 * 50_257 * 384
    assert result.model.last_bucket_bytes > table > result.model.rows_last_bucket_bytes
    whole = scale_capture(asked, compile_scope="model")
    assert not any(row.embedding_rows for row in whole.predictions)
    assert "compile_scope=model" in " ".join(whole.assumed)
    assert "is sent as one row" not in " ".join(scale_capture(asked, vocab_size=65).assumed)


def test_copies_are_assumed_to_slow_less_and_are_for_one_node():
    asked = Request((1, 8, 16), 8, ("ddp",), all_reduce="copies")
    result = scale_capture(asked)
    assert [row.all_reduce for row in result.predictions] == [None, "copies", "collective"]
    assert result.slowdown == Slowdown(SLOWDOWN_PERCENT, "assumed")
    assert result.slowdown_beside_copies == Slowdown(COPIES_SLOWDOWN_PERCENT, "assumed")
    said = " ".join(result.assumed)
    assert "4 to 9 %" in said and "ddp on several nodes averages with collectives" in said
    collective = scale_capture(replace(asked, all_reduce="collective"))
    assert collective.slowdown_beside_copies is None
    assert "all_reduce=copies" not in " ".join(collective.assumed)
    (_, here, there), (_, before, same) = result.predictions, collective.predictions
    assert here.step_ms < before.step_ms and there.step_ms == same.step_ms
    assert here.sent_bytes == before.sent_bytes
    given = scale_capture(replace(asked, slowdown_percent=7.0))
    assert given.slowdown_beside_copies == Slowdown(7.0, "given")


def test_a_shared_update_is_said_and_makes_ddp_shorter():
    asked = Request((1, 2, 8), 8, ("ddp", "fsdp"), all_reduce="copies")
    shared, alone = (
        scale_capture(replace(asked, shard_update=on), vocab_size=65, **FUSED)
        for on in (True, False)
    )
    ways = [(row.gpus, row.mode) for row in shared.predictions if row.shard_update]
    assert ways == [(2, "ddp"), (8, "ddp")]
    for with_it, without in zip(shared.predictions, alone.predictions, strict=True):
        if with_it.shard_update:
            assert with_it.sent_bytes < without.sent_bytes
        else:
            assert with_it == without
    # the first bucket of 25 MiB; the second one has the table, which all update
    said = " ".join(shared.assumed)
    assert "each GPU updates its part of 6.6 of 10.7 million weights" in said
    assert f"{shared.measured.update_ms:.2f} ms for all; the time of the norm" in said
    assert "shard_update" not in " ".join(alone.assumed)
    # norms and positions are in no bucket
    assert shared.model.last_bucket_bytes == 4 * ((72 - 45) * 384**2 + 65 * 384)
    assert shared.model.last_bucket_bytes < alone.model.last_bucket_bytes
    assert alone.model.parameters == shared.model.parameters


def test_gradients_in_16_bits_are_said_and_halve_what_is_sent_of_them():
    asked = Request((1, 2), 8, ("ddp", "fsdp"), shard_update=True)
    long, short = (
        scale_capture(replace(asked, reduce_dtype=dtype), vocab_size=65, **FUSED)
        for dtype in ("float32", "bfloat16")
    )
    assert [row.reduce_dtype for row in long.predictions] == [None, "float32", None]
    assert [row.reduce_dtype for row in short.predictions] == [None, "bfloat16", None]
    saved = long.predictions[1].sent_bytes - short.predictions[1].sent_bytes
    assert saved == 45 * 384**2  # half of two bytes of each weight in the bucket that is shared
    assert short.predictions[1].step_ms < long.predictions[1].step_ms
    said = "products that write 16 bits take as long"
    assert said in " ".join(short.assumed) and said not in " ".join(long.assumed)


def test_pieces_of_graphs_are_said_where_there_are_graphs():
    said = {on: scale_capture(Request((1, 2), 8), cuda_graphs=on) for on in ("true", "false")}
    pauses = ["CUDA graphs are split" in " ".join(result.assumed) for result in said.values()]
    assert pauses == [True, False]
    with_them, without = (result.predictions[1].step_ms for result in said.values())
    assert with_them > without


def test_the_slowdown_is_what_compute_lost_beside_collectives(tmp_path):
    asked, beside = Request((1, 4), 8), {"ranks": 2, "steps": 4, "buckets": 2}
    twice, hardly = (
        slowdown_of(asked, report_of(write_fleet(Fleet(**beside, slowdown=by), tmp_path / str(by))))
        for by in (1.9, 1.0)
    )
    assert twice.source == hardly.source == "measured"
    assert twice.percent == pytest.approx(90, abs=8) and hardly.percent < 3
    behind = report_of(
        write_fleet(Fleet(ranks=2, steps=4, buckets=0, slowdown=1.9), tmp_path / "0")
    )
    assert slowdown_of(asked, behind) == Slowdown(SLOWDOWN_PERCENT, "assumed")
    given = replace(asked, slowdown_percent=7.0)
    assert slowdown_of(given, behind) == Slowdown(7.0, "given")


def test_kernels_that_fsdp_refuses_are_told():
    capture = capture_of("flash_metrics")
    assert capture.manifest and capture.manifest.config
    fused = replace(capture.manifest, config=capture.manifest.config | {"kernels": "fused"})
    said = {
        ways: " ".join(scale(replace(capture, manifest=fused), Request((8,), 8, ways)).assumed)
        for ways in (("ddp",), MODES)
    }
    assert "kernels=fused" in said[MODES] and "kernels=fused" not in said["ddp",]


def test_more_micro_steps_are_as_long_as_those_that_were_measured():
    one, five = (
        scale(capture_of("flash_metrics"), Request((1, 8), 8, micro_steps=count))
        for count in (1, 5)
    )
    passes = one.measured.forward_ms + one.measured.backward_ms
    assert five.measured.step_ms - one.measured.step_ms == pytest.approx(4 * passes)
    assert five.tokens == 5 * one.tokens
    kept = [result.predictions[1].efficiency_percent for result in (one, five)]
    assert kept[0] < kept[1] < 100
