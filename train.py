"""Trains a GPT: configuration -> data -> model -> loop. `python train.py --help` shows all keys.

    python train.py config/shakespeare_char.yaml attention=flash
    torchrun --standalone --nproc_per_node=2 train.py config/shakespeare_char.yaml \\
        gradient_accumulation_steps=2
"""

from configs import command_line

if __name__ == "__main__":
    # --help, mistakes and TAB completion end here, before torch, which takes seconds to import
    start = command_line.read()

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from configs.schema import Config
from data.batches import Batches
from data.dataset import Dataset, load_dataset
from data.prepare import prepare
from model import GPT
from profiling.capture.sampler import GpuSampler, NoSampler
from profiling.capture.spans import NoSpans, Spans
from training import checkpoint
from training.capture import Profiler
from training.clock import clock_for
from training.console import configure_logging
from training.device import check_attention, explained_out_of_memory, reasons, resolve
from training.distributed import Ranks, started
from training.evaluate import evaluate
from training.gpu_metrics import sampler_for
from training.interrupt import Interrupt
from training.optimizer import adamw, learning_rate
from training.record import open_record
from training.run import Progress, Run
from training.step import Step, TrainingStep
from training.tensorboard import check_tensorboard
from training.wandb_mirror import check_wandb
from training.warm_up import warm_up


def train(config: Config) -> None:
    """One run from its configuration to its last checkpoint."""
    with started(config.device) as ranks, explained_out_of_memory(config):
        configure_logging(ranks.rank)
        train_on(ranks, config)


def train_on(ranks: Ranks, asked: Config) -> None:
    """The run of one rank."""
    config = settled(asked, ranks)

    # what watches the run; each does nothing where it is off
    profiler = Profiler(config, ranks)
    spans = profiler.spans
    gpu = sampler_for(config.gpu_metrics, ranks)

    # data and model; what is to be compiled and captured is so before the loop, where no iteration
    # pays for it: `step` is the run's own, or CUDA graphs of it
    run = run_of(config, reasons(asked, ranks.device), ranks, spans)
    progress, batches = run.progress, run.train_batches
    step, warm = warm_up(run.step, *batches.draw(progress.iteration, 0), config, ranks)

    record = open_record(run, warm, gpu)
    clock = clock_for(ranks.device, longest_window=config.profile.steps)
    window = profiler.window(run, warm, clock)

    def save() -> None:
        with aside("checkpoint", spans, gpu):
            checkpoint.save(run)

    with record, gpu, Interrupt() as interrupt, window:
        while True:
            iteration = spans.now = progress.iteration
            finished = iteration >= config.max_iters or config.eval_only

            # every eval_interval iterations look at both splits, and keep weights that are better
            if iteration % config.eval_interval == 0 or finished:
                with aside("evaluate", spans, gpu):
                    losses = evaluate(run.model, batches, run.val_batches, iteration, config, ranks)
                record.evaluated(iteration, losses)
                improved = progress.improved(losses["val/loss"])
                if iteration > 0 and (improved or config.always_save_checkpoint):
                    save()
                clock.start()  # anew, behind all this: a lap counts from the one before it
            if finished:
                break

            # gradients of all micro-batches, then the update; the host only launches this work and
            # runs ahead of the GPU, for which nothing in here waits
            lr = learning_rate(iteration, config)
            with window.iteration(iteration):
                accumulate(step, batches, iteration, spans)
                step.average_gradients()
                with spans.phase("optimizer"):
                    step.update(lr)
                clock.lap(window.label)
            progress.iteration += 1

            # the loss and the times are on the GPU: to read them is to wait for it, so not often
            logged = iteration % config.log_interval == 0
            if logged:
                with spans.phase("log"):
                    record.trained(iteration, lr, ranks.means(step.readings), clock.read())

            # Ctrl-C and SIGTERM end the run between iterations, and a resume goes on from here
            if interrupt.agreed(ranks, logged):
                window.close("interrupted")
                record.check_loss(iteration, "training", ranks.means(step.readings)["train/loss"])
                save()
                raise SystemExit(interrupt.exit_code)


def accumulate(
    step: TrainingStep, batches: Batches, iteration: int, spans: Spans | NoSpans
) -> None:
    """Forward and backward of this rank's micro-batches, whose gradients add up."""
    for micro_step in range(step.micro_steps):
        with spans.micro_step(micro_step, of=step.micro_steps):
            with spans.phase("data"):
                x, y = batches.draw(iteration, micro_step)
            with spans.phase("forward"):
                loss = step.forward(x, y)
            with spans.phase("backward"):
                step.backward(loss)


@contextmanager
def aside(phase: str, spans: Spans | NoSpans, gpu: GpuSampler | NoSampler) -> Iterator[None]:
    """Around what is no training: the GPU's samples in it count for the energy alone."""
    with spans.phase(phase), gpu.paused():
        yield


def settled(config: Config, ranks: Ranks) -> Config:
    """The configuration without an `auto`, refused here if it cannot run on this machine."""
    config = resolve(config, ranks.device)
    check_attention(config, ranks.device, config.dtype)
    check_wandb(config.wandb)
    if config.tensorboard:
        check_tensorboard()
    config.profile.check_machine(ranks.device.type, ranks.world_size)
    if config.gradient_accumulation_steps % ranks.world_size:
        raise ValueError(
            f"gradient_accumulation_steps={config.gradient_accumulation_steps}: not divisible by "
            f"the {ranks.world_size} ranks that share them; use {ranks.world_size}"
        )
    return config


def run_of(config: Config, why: dict[str, str], ranks: Ranks, spans: Spans | NoSpans) -> Run:
    """Its data and model; `why` the keys that were left at `auto` came to what they are."""
    # the text as tokens: rank 0 makes what is not there yet
    dataset = load_dataset(ranks.from_first(lambda: prepare(config).directory))
    train, val = (batches_of(dataset, split, config, ranks) for split in ("train", "val"))
    model, step, progress = model_of(config, dataset, spans, ranks)
    return Run(config, why, ranks, dataset, train, val, model, step, progress)


def model_of(
    config: Config, dataset: Dataset, spans: Spans | NoSpans, ranks: Ranks
) -> tuple[GPT, Step, Progress]:
    """The model and its optimizer, fresh or as the checkpoint has them."""
    torch.manual_seed(config.seed)  # the same weights on every rank
    model = GPT(config, dataset.tokenizer.vocab_size).to(ranks.device)
    step = Step(model, adamw(model, config, ranks.device), config, ranks, spans)
    torch.manual_seed(config.seed + ranks.rank)  # dropout of its own
    if config.init_from == "resume":
        return model, step, checkpoint.resume(model, step, config, dataset, ranks)
    return model, step, Progress()


def batches_of(dataset: Dataset, split: str, config: Config, ranks: Ranks) -> Batches:
    tokens = dataset.tokens(split)
    return Batches(tokens, split, config, ranks.device, ranks.rank, ranks.world_size)


if __name__ == "__main__":
    start(train)
