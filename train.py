"""Trains a GPT: configuration -> data -> model -> loop. `python train.py --help` shows all keys.

    python train.py config/shakespeare_char.yaml attention=flash
    torchrun --standalone --nproc_per_node=2 train.py config/shakespeare_char.yaml \\
        gradient_accumulation_steps=2
"""

from configs import command_line

if __name__ == "__main__":
    # --help, mistakes and TAB completion end here, before torch, which takes seconds to import
    start = command_line.read()

import time
from functools import partial

import torch

from configs.schema import Config
from data.batches import Batches
from data.prepare import Dataset, load_dataset, prepare
from model import GPT
from profiling.capture.spans import NoSpans, Spans, spans_for
from training import checkpoint
from training.capture import recorder_for, window_for
from training.checkpoint import Progress
from training.clock import clock_for
from training.console import configure_logging
from training.device import check_attention, explained_out_of_memory, resolve
from training.distributed import Ranks, started
from training.evaluate import evaluate
from training.gpu_metrics import sampler_for
from training.interrupt import Interrupt
from training.optimizer import adamw, learning_rate
from training.record import open_record
from training.step import Step
from training.tensorboard import check_tensorboard
from training.wandb_mirror import check_wandb
from training.warm_up import warm_up


def train(config: Config) -> None:
    """One run from its configuration to its last checkpoint."""
    began_s = time.perf_counter()
    with started(config.device) as ranks, explained_out_of_memory(config):
        configure_logging(ranks.rank)
        config = settled(config, ranks)
        dataset = load_dataset(ranks.from_first(lambda: prepare(config).directory))
        train_batches = batches_of(dataset, "train", config, ranks)
        val_batches = batches_of(dataset, "val", config, ranks)

        spans = spans_for(config.profile.kind)
        recorder = recorder_for(config, ranks)
        gpu = sampler_for(config.gpu_metrics, ranks)
        model, step, progress = model_of(config, dataset, spans, ranks)
        save = partial(checkpoint.save, model, step, config, dataset, ranks)
        step, warm = warm_up(step, *train_batches.draw(progress.iteration, 0), config, ranks)
        record = open_record(config, dataset, model, warm, progress, gpu, ranks, began_s)

        clock = clock_for(ranks.device)
        window = window_for(config, model, recorder, spans, clock, warm, progress, ranks)

        with record, gpu, Interrupt() as interrupt, window:
            while True:
                iteration = spans.now = progress.iteration
                finished = iteration >= config.max_iters or config.eval_only
                if iteration % config.eval_interval == 0 or finished:
                    with spans.phase("evaluate"), gpu.paused():
                        losses = evaluate(
                            model, train_batches, val_batches, iteration, config, ranks
                        )
                    record.evaluated(iteration, losses)
                    improved = progress.improved(losses["val/loss"])
                    if iteration > 0 and (improved or config.always_save_checkpoint):
                        with spans.phase("checkpoint"), gpu.paused():
                            save(progress)
                    clock.start()
                if finished:
                    break

                lr = learning_rate(iteration, config)
                with window.iteration(iteration):
                    for micro_step in range(step.micro_steps):
                        with spans.micro_step(micro_step, of=step.micro_steps):
                            with spans.phase("data"):
                                x, y = train_batches.draw(iteration, micro_step)
                            with spans.phase("forward"):
                                loss = step.forward(x, y)
                            with spans.phase("backward"):
                                step.backward(loss)
                    step.average_gradients()
                    with spans.phase("optimizer"):
                        step.update(lr)
                    clock.lap(window.label)
                progress.iteration += 1

                logged = iteration % config.log_interval == 0
                if logged:
                    with spans.phase("log"):
                        record.trained(iteration, lr, ranks.mean(step.loss), clock.read())
                if interrupt.agreed(ranks, logged):
                    window.close("interrupted")
                    record.check_loss(iteration, "training", ranks.mean(step.loss).item())
                    with spans.phase("checkpoint"):
                        save(progress)
                    raise SystemExit(interrupt.exit_code)


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
    return Batches(
        dataset.tokens(split),
        block_size=config.block_size,
        batch_size=config.batch_size,
        accumulation_steps=config.gradient_accumulation_steps,
        seed=config.seed,
        rank=ranks.rank,
        world_size=ranks.world_size,
        device=ranks.device,
        storage=config.token_storage,
        stream={"train": 0, "val": 1}[split],
        split=split,
    )


if __name__ == "__main__":
    start(train)
