"""Writes text with a trained GPT: the text to stdout, everything else to stderr.

python sample.py out_dir=out-shakespeare-char start="ROMEO:" num_samples=3
"""

if __name__ == "__main__":
    import sys

    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet

    # --help and mistakes end here, before torch, which takes seconds to import
    from cli.help import read_keys
    from configs.sampling import HELP, SampleConfig
    from configs.without_effect import SAMPLING, say_idle_keys

    asked = read_keys(HELP, SampleConfig)
    say_idle_keys(SAMPLING, sys.argv[1:], [asked])

import codecs
import io
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from logging.handlers import MemoryHandler
from pathlib import Path

import torch

from cli.errors import user_errors
from cli.interrupts import unwind_on_signal
from cli.keys import spell
from configs.backends import AUTO, BACKENDS, is_compiled, pinned_kernel
from configs.model import ModelConfig
from configs.sampling import FOLDER, SampleConfig
from data.dataset import STAND_IN
from data.source_text import read_utf8
from data.tokenizers import END_OF_TEXT, Tokenizer
from model import GPT
from training.disk.checkpoint_file import Checkpoint, model_to_fill
from training.disk.gpt2 import Pretrained, load_pretrained
from training.disk.whole_checkpoint import load
from training.machine.device import check_attention, resolve_device, resolve_dtype
from training.metrics.console import log_through
from training.ranks.next_commands import report_command
from training.sample_capture import token_spans
from training.sampling.decode import attend_at_once, try_own_kernels
from training.sampling.generation import Writer
from training.sampling.rehearsal import rehearsal

log = logging.getLogger("sample")

FILE = "FILE:"
SEPARATOR = "\n---------------"
RECORDING = "profiling.recording"  # the logger of what is captured


def sample(config: SampleConfig) -> None:
    """Writes the samples. Sample k (from 0) depends on seed + k alone, not on those before it."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # graphs are captured on the current one
    prompt_text(config.start)  # report an unreadable file before the weights are loaded
    if config.compile is not None:
        log.info("compile=%s: no effect, because sampling compiles nothing", spell(config.compile))
    model, tokenizer = load_model(config, device, dtype)
    block_size = model.config.block_size
    prompt = encode_prompt(config.start, tokenizer)
    if len(prompt) > block_size:
        log.warning(
            "start: %d tokens, of which the model sees only the last %d", len(prompt), block_size
        )
    capture = token_spans(config, model)  # does nothing without `profile=`
    began = time.perf_counter()
    own = own_kernels_run(model, config.rows)
    writer = Writer(model, config.rows, config.temperature, config.top_k, own)
    with unwind_on_signal(), capture.window:
        for first in range(0, config.num_samples, config.rows):
            writer.begin(prompt, config.seed + first)
            count = min(config.rows, config.num_samples - first)
            with held_back(logging.getLogger(RECORDING)):
                show(prompt, capture.tokens(writer), count, tokenizer)
    seconds = time.perf_counter() - began
    count = config.num_samples * config.max_new_tokens
    log.info("%s tokens in %.1f s: %s tokens/s", f"{count:,}", seconds, f"{count / seconds:,.0f}")
    if config.profile.kind == "torch":
        log.info("next: %s", report_command(str(Path(config.out_dir) / FOLDER)))


@contextmanager
def held_back(logger: logging.Logger) -> Iterator[None]:
    """Keeps the logger's lines until the block ends: a text on its way is not broken by them."""
    lines = MemoryHandler(capacity=1000, flushLevel=sys.maxsize)
    logger.addHandler(lines)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(lines)
        for record in lines.buffer:
            logging.root.handle(record)


def show(
    prompt: list[int], new: Iterator[list[list[int]]], count: int, tokenizer: Tokenizer
) -> None:
    """Prints the first of `count` texts as its tokens come, then the others."""
    others: list[list[int]] = [[] for _ in range(count - 1)]

    def of_the_first() -> Iterator[list[int]]:
        for arrived in new:
            for row, tokens in zip(others, arrived[1:], strict=False):  # the last batch has fewer
                row += tokens
            yield arrived[0]

    for text in texts(prompt, of_the_first(), tokenizer):
        print(text, end="", flush=True)
    print(SEPARATOR, flush=True)
    for row in others:
        print("".join(texts(prompt, iter([row]), tokenizer)) + SEPARATOR, flush=True)


def load_model(config: SampleConfig, device: torch.device, dtype: str) -> tuple[GPT, Tokenizer]:
    """The model, ready on the device, and its tokenizer."""
    saved: Checkpoint | Pretrained
    with rehearsal(device, dtype, config.rows):
        if config.init_from == "resume":
            saved = load(Path(config.out_dir) / "ckpt.pt")
        else:
            saved = load_pretrained(config.init_from, config.weights)
    trained = replace(saved.model_config, dropout=0.0, kernels="compiled")  # as any machine can
    attention = runnable_attention(trained, config.attention, device, dtype)
    model = model_to_fill(replace(trained, attention=attention), saved.tokenizer.vocab_size)
    model.load_state_dict(saved.weights)
    describe(saved, model)
    log.info("%s, %s, attention %s", device, dtype, attention)
    return model.to(device, getattr(torch, dtype)).eval(), saved.tokenizer


def runnable_attention(
    trained: ModelConfig, asked: str | None, device: torch.device, dtype: str
) -> str:
    """The attention backend to sample with: `asked`, else the checkpoint's own, else auto.

    A fall back to auto is logged. Raises ValueError if `asked` does not run here.
    """
    config = replace(trained, attention=asked or trained.attention)
    try:
        check_attention(config, device, dtype)
        try_decoding(config, device, dtype)
    except ValueError as error:
        if asked:
            raise
        log.warning("in the checkpoint: %s. Sampling uses attention=auto", error)
        return AUTO
    if asked is None and is_compiled(trained.attention):
        log.info(
            "attention=%s would compile for some seconds first, so auto is used", trained.attention
        )
        return AUTO
    return config.attention


def own_kernels_run(model: GPT, rows: int) -> bool:
    """Whether our own kernels read single tokens, which is logged.

    They do on CUDA, if they run here and `attention` does not pin another kernel for that.
    """
    attention = model.config.attention
    if model.lm_head.weight.device.type != "cuda":
        return False
    if attention != AUTO and BACKENDS[attention].masks:
        return False
    try:
        try_own_kernels(model, rows)
    except ValueError as error:
        log.info("single tokens: our own kernels do not run here and are not used: %s", error)
        return False
    log.info("single tokens: our own kernels; prompts: attention=%s", attention)
    return True


def try_decoding(config: ModelConfig, device: torch.device, dtype: str) -> None:
    """Raises ValueError if a pinned kernel cannot read a prompt or a single token of this shape."""
    if pinned_kernel(config.attention) is None:
        return
    zeros = partial(torch.zeros, dtype=getattr(torch, dtype), device=device)
    for tokens, keys in ((1, 1), (1, config.block_size), (config.block_size, config.block_size)):
        q, k = (
            zeros(1, config.n_head, length, config.n_embd // config.n_head)
            for length in (tokens, keys)
        )
        mask = zeros(tokens, keys) if device.type == "cuda" and tokens < keys else None
        try:
            with warnings.catch_warnings(action="ignore"):  # PyTorch's reasons, several lines
                attend_at_once(q, k, k, config.attention, mask)
        except RuntimeError as error:
            raise ValueError(
                f"attention={config.attention}: has no {dtype} kernel on {device} for {tokens} "
                f"new tokens and {keys} in total; use attention=auto"
            ) from error


def describe(saved: Checkpoint | Pretrained, model: GPT) -> None:
    """Logs what was loaded: its size, iteration, validation loss and training text."""
    size = sum(p.numel() for p in model.parameters()) / 1e6
    if isinstance(saved, Pretrained):
        log.info("%s: %.2fM parameters", saved.path, size)
        return
    at, best_at = saved.iteration, saved.best_iteration
    quality = ""
    if best_at is not None:
        quality = f", val loss {saved.best_val_loss:.4f}"
        quality += "" if best_at == at else f" at best, in iteration {best_at}"
    log.info("%s: %.2fM parameters, iteration %d%s", saved.path, size, at, quality)
    if saved.source == STAND_IN:
        log.warning("trained on the built-in substitute text, not on Shakespeare")
    elif saved.source is not None:
        log.info("trained on %s", saved.source)


def encode_prompt(start: str, tokenizer: Tokenizer) -> list[int]:
    """Token ids of the prompt. Raises ValueError naming the key and, if there is one, the file."""
    if start == END_OF_TEXT and tokenizer.end_of_text is not None:
        return [tokenizer.end_of_text]
    text = prompt_text(start)
    try:
        ids: list[int] = tokenizer.encode(text).tolist()
    except ValueError as error:
        key = f"start={start}" if start.startswith(FILE) else "start"
        raise ValueError(f"{key}: {error}") from error
    return ids


def prompt_text(start: str) -> str:
    """Text of the prompt: `start` itself, or the content of the file in FILE:NAME.

    Raises ValueError naming the key and, if there is one, the file.
    """
    key, text = "start", start.replace("\\n", "\n")
    if start.startswith(FILE):
        key = f"start={start}"
        text = read_utf8(start.removeprefix(FILE), key)
    if not text:
        raise ValueError(
            f"{key}: empty; the model needs at least one token to start from, such as start=\\n"
        )
    return text


def texts(prompt: list[int], new: Iterator[list[int]], tokenizer: Tokenizer) -> Iterator[str]:
    """Text of the prompt, then of the tokens as they come.

    A character that consists of several tokens comes with the last of them.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    yield decoder.decode(tokenizer.decode_bytes(prompt))
    for tokens in new:
        if tokens:
            yield decoder.decode(tokenizer.decode_bytes(tokens))
    yield decoder.decode(b"", final=True)


def main(config: SampleConfig) -> None:
    # Log to stderr, so that stdout can be piped.
    log_through(logging.StreamHandler(sys.stderr), logging.INFO, "sample", RECORDING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack some characters
    with user_errors():
        sample(config)


if __name__ == "__main__":
    main(asked)
