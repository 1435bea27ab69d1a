"""Step and model for `scale` that are small enough to be computed by hand."""

from dataclasses import replace

from configs.sharing import Travel
from profiling.analysis.scale.links import LINK_STEP_MS, START_MS, Links
from profiling.analysis.scale.model_sizes import EmbeddingRows, ModelSizes
from profiling.analysis.scale.replay import Work
from profiling.analysis.scale.scale import Request, scale
from profiling.analysis.scale.scale_records import Scale, StepParts
from tests.helpers.captures import capture_of

MB = 10**6
EACH_ALONE = Travel((range(1), range(1, 2)), kept=False)
# two blocks of 250,000 parameters, which are 1 MB; 500,000 parameters outside of blocks
MATRICES = (150_000, 100_000)
TINY = ModelSizes((100_000,), MATRICES, 2, (), 400_000, 0.8, 2, EACH_ALONE, MATRICES)
# 20 ms: forward 6, of it 2 x 2 in blocks; backward 12, of it 2 x 4 in blocks; update 1
PARTS = StepParts(20.0, 1, 6.0, 12.0, 2.0, 4.0, 2.0, 1.0, "kernels")
# a table of 400 ids of 1,000 numbers: the 400,000 parameters of TINY
ROWS = EmbeddingRows(tokens=100, ids=400, width=1_000, number_bytes=2)
WITH_ROWS = replace(PARTS, embedding_backward_ms=1.0)
FREE = Links(8, 1e9, 1e9)  # transfers take no time; latency stays


def work(**changes) -> Work:
    return replace(Work(PARTS, TINY, 0.9, 0.0, None), **changes)


def all_reduce_ms(megabytes: float, gpus: int, gb_per_s: float) -> float:
    """Time in ms of an all-reduce within a node."""
    transfer = 2 * (gpus - 1) / gpus * megabytes / gb_per_s
    return transfer + START_MS + 2 * (gpus - 1) * LINK_STEP_MS


def scale_capture(asked: Request, vocab_size: int = 50_257, **config: object) -> Scale:
    """Predictions of `scale` from a capture of a run with 16,384 tokens per step."""
    capture = capture_of("flash_metrics")
    assert capture.manifest and capture.manifest.config
    changed = replace(
        capture.manifest, vocab_size=vocab_size, config=capture.manifest.config | config
    )
    return scale(replace(capture, manifest=changed), asked)


FUSED = {"kernels": "fused", "compile": False}
