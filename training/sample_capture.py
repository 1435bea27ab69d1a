"""Captures generation with the profiler of section `profile`. Called by sample.py.

A step is a token. Ranges are like the trainer's: each token has a range "token N", and in it
prefill (for the prompt, and for the context that is read again when the cache is full) or decode,
and read, in which the host waits for tokens, on CUDA for some that were launched long before.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from configs.sampling import FOLDER, SampleConfig
from model import GPT
from profiling.recording.recording import NoRecording, Recording
from profiling.recording.schedule import Schedule
from profiling.recording.spans import NoSpans, Spans
from profiling.recording.window import Window
from profiling.shared.manifest import SCHEMA_VERSION, AttentionFacts, CapturedWindow, Manifest
from training.disk.run_folder import environment
from training.profiler import check_alone, recorder_for
from training.sampling.generation import Writer, arrivals_of
from training.step.clock import CudaClock, HostClock, clock_for

STEP = "token"


@dataclass
class TokenSpans:
    """Ranges and window of a capture; enclose all samples with its `window`.

    Without `profile=` the window never opens.
    """

    window: Window
    spans: Spans | NoSpans
    clock: CudaClock | HostClock
    tokens_per_sample: int
    number: int = 0  # of the next step, counted over all samples

    def tokens(self, writer: Writer) -> Iterator[list[list[int]]]:
        """New tokens of each of the writer's texts, as they arrive; each token is a step."""
        arrivals = arrivals_of(writer)
        for _ in range(self.tokens_per_sample):
            self.spans.now = self.number
            with self.window.iteration(self.number):
                with self.spans.phase("decode" if writer.reads_one else "prefill"):
                    writer.step()
                with self.spans.phase("read"):
                    arrived = arrivals.after_step()
                self.clock.lap(self.window.label)
            self.number += 1
            yield arrived
        yield arrivals.receive_all()


def token_spans(config: SampleConfig, model: GPT) -> TokenSpans:
    """Ranges and window for `config`. Raises ValueError if this machine cannot capture that."""
    device = model.lm_head.weight.device
    profile = config.window()
    profile.check_machine(device.type, 1)
    check_alone(profile, device.type == "cuda")
    folder = Path(config.out_dir) / FOLDER / "profile"
    recorder = recorder_for(profile, device.type == "cuda", folder)
    spans: Spans | NoSpans = NoSpans()
    recording: Recording | NoRecording = NoRecording()
    if recorder:
        spans = Spans(STEP)
        known = manifest_of(config, model, device)
        recording = Recording(recorder, profile, spans, model, folder, known)
    tokens = config.steps
    schedule = Schedule(profile, 0, tokens, eval_interval=tokens + 1, step=STEP)
    clock = clock_for(device, profile.steps) if recorder else HostClock()
    window = Window(profile, schedule, recording, spans, clock)
    return TokenSpans(window, spans, clock, config.max_new_tokens)


def manifest_of(config: SampleConfig, model: GPT, device: torch.device) -> Manifest:
    """Manifest with what is known before the window opens."""
    asked = model.config.attention
    keys = asdict(model.config) | asdict(config)
    dtype = str(model.lm_head.weight.dtype).removeprefix("torch.")
    return Manifest(
        schema_version=SCHEMA_VERSION,
        kind=config.profile.kind,
        window=CapturedWindow(),
        device=str(device),
        vocab_size=model.lm_head.out_features,
        attention=AttentionFacts(asked, None, "sample.py does not check; see the kernels"),
        environment=environment(),
        config=keys | {"attention": asked, "dtype": dtype, "device": device.type},
    )
