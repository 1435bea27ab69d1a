"""Trains a GPT: configuration -> data -> model -> loop. `python train.py --help` shows all keys.

    python train.py config/shakespeare_char.yaml attention=flash
    torchrun --standalone --nproc_per_node=2 train.py config/shakespeare_char.yaml \\
        gradient_accumulation_steps=2
"""

if __name__ == "__main__":
    from cli import process
    from cli.process import begin

    begin()  # from here on Ctrl-C is quiet
    process.begin_many_imports()

    # --help, mistakes and TAB completion end here, before torch, which takes seconds to import
    from configs import command_line

    start = command_line.read()

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from configs.schema import Config
from data.batches import Batches
from data.dataset import Dataset, load_dataset
from data.prepare import prepare
from kernels.fused_model import make_model
from model import GPT
from profiling.recording.sampler import GpuSampler, NoSampler
from profiling.recording.spans import NoSpans, Spans
from training.checks import (
    agree_on_averages,
    check_job,
    check_same_keys,
    check_same_text,
    resolve_and_check,
)
from training.disk import checkpoint, gpt2
from training.disk.checkpoint_file import model_to_fill
from training.disk.run_folder import RunFolder, own_folder
from training.disk.run_parts import Progress, Run
from training.disk.save_timer import SaveTimer, checkpoint_interval_s
from training.gpu_metrics import sampler_for
from training.machine.memory_fit import announce_many_blocks, explain_out_of_memory
from training.metrics.capture_upload import send_capture
from training.metrics.console import configure_logging
from training.metrics.record import open_record
from training.metrics.rows import Rows
from training.optimizers.kinds import make_optimizer
from training.optimizers.optimizer import learning_rate
from training.profiler import Profiler
from training.ranks import flight_recorder
from training.ranks.distributed import Ranks, join_run
from training.ranks.interrupt import Interrupt
from training.ranks.restart import apply_go_on, warn_of_restarts
from training.step.clock import clock_for
from training.step.evaluate import evaluate
from training.step.layout import make_layout
from training.step.own_kernels import prepare_triton
from training.step.scoring import Scoring
from training.step.step import Step, TrainingStep
from training.step.warm_up import warm_up


def train(config: Config) -> None:
    """Runs one training from its configuration to its last checkpoint."""
    began_s = time.time()
    # The flight recorder keeps the collectives of a run of several ranks.
    recording = flight_recorder.enable_recording(config.out_dir)
    with recording, join_run(config.device) as ranks, explain_out_of_memory(config):
        configure_logging(ranks.rank)
        warn_of_restarts(config)
        config = apply_go_on(config)
        check_same_keys(config, ranks)
        resolved = resolve_and_check(config, ranks.device, ranks.world_size)
        resumed = resolved.init_from == "resume"
        with (
            own_folder(resolved, ranks) as folder,
            flight_recorder.dump_on_error(folder.path, ranks, resumed),
        ):
            resolved, why = agree_on_averages(config, resolved, ranks)
            train_on(ranks, resolved, why, folder)
    if ranks.rank == 0:  # the folder is free by now
        send_capture(resolved, began_s)


def train_on(ranks: Ranks, config: Config, why: dict[str, str], folder: RunFolder) -> None:
    """Trains on this rank. `why` gives, for each key left at `auto`, the reason for its value."""
    # These watch the run; each does nothing where it is switched off.
    profiler = Profiler(config, ranks)
    spans = profiler.spans
    gpu = sampler_for(config.gpu_metrics, ranks)

    # Compile and capture before the loop, so that no iteration pays for it. `step` is the run's own
    # step, or CUDA graphs of it.
    with prepare_triton(config):
        run = run_of(config, why, ranks, folder, spans)
    progress, batches = run.progress, run.train_batches
    done = progress.iteration
    step, warm = warm_up(run.step, *batches.draw(done, 0), config, ranks, done)
    scoring = Scoring(run.model, config, ranks.device)

    record = open_record(run, warm, gpu)
    clock = clock_for(ranks.device, config.profile.steps, run.step.layout.waits_at_end)
    rows = Rows(run, record, clock, spans)
    window = profiler.window(run, warm, clock, rows.write_pending)
    timer = SaveTimer(checkpoint_interval_s(config, ranks.device))

    def save() -> None:
        with paused("checkpoint", spans, gpu):
            checkpoint.save(run)
        timer.restart()

    with Interrupt() as interrupt, record, gpu, window, rows:
        while True:
            iteration = spans.now = progress.iteration
            finished = iteration >= config.max_iters or config.eval_only

            # Every eval_interval iterations, evaluate both splits and keep weights that are better.
            # A checkpoint that could not be written is tried again.
            if iteration % config.eval_interval == 0 or finished:
                rows.write_pending()
                with paused("evaluate", spans, gpu):
                    losses = evaluate(scoring, batches, run.val_batches, iteration, config, ranks)
                record.log_evaluation(iteration, losses, ranks.means(step.readings))
                improved = progress.note_val_loss(losses["val/loss"])
                due = improved or config.always_save_checkpoint
                if iteration > 0 and (due or ranks.any(progress.owes_checkpoint)):
                    save()
                clock.start()  # the next lap must not include the evaluation and the checkpoint
            if finished:
                checkpoint.leave_best(run)
                break

            # Compute the gradients of all micro-batches, then update. The host only launches this
            # work and runs ahead of the GPU: nothing in here waits for it.
            lr = learning_rate(iteration, config)
            with window.iteration(iteration):
                accumulate(step, batches, iteration, spans)
                with clock.synchronisation():
                    step.average_gradients()
                with spans.phase("optimizer"):
                    step.update(lr)
                clock.lap(window.label)
            progress.iteration += 1

            # The loss and the times are on the GPU, and reading them waits for it. So it is done
            # rarely, and only while the GPU has the next iteration to compute.
            rows.write_pending()
            logged = iteration % config.log_interval == 0
            if logged:
                rows.take(iteration, lr)
                with clock.synchronisation():  # with several ranks the hosts must agree
                    profiler.open_if_asked(window, progress.iteration)

            # A checkpoint here is where a resume continues. The timer asks for one now and then,
            # independent of evaluations; Ctrl-C, SIGTERM and SIGHUP save one, too, and end the run.
            asked = interrupt.agree(ranks, logged, timer.is_due() and not window.is_open)
            if asked.save:
                rows.write_pending()
                if asked.stop:
                    window.close("interrupted")
                record.check_finite(iteration, ranks.means(step.readings))
                save()
                if asked.stop:
                    raise SystemExit(interrupt.exit_code)
                clock.start()


def accumulate(
    step: TrainingStep, batches: Batches, iteration: int, spans: Spans | NoSpans
) -> None:
    """Runs forward and backward of this rank's micro-batches; their gradients add up."""
    for micro_step in range(step.micro_steps):
        with spans.micro_step(micro_step, of=step.micro_steps):
            with spans.phase("data"):
                x, y = batches.draw(iteration, micro_step)
            with spans.phase("forward"):
                loss = step.forward(x, y)
            with spans.phase("backward"):
                step.backward(loss)


@contextmanager
def paused(phase: str, spans: Spans | NoSpans, gpu: GpuSampler | NoSampler) -> Iterator[None]:
    """Marks the block as `phase`, outside training: its GPU samples count for energy alone."""
    with spans.phase(phase), gpu.pause(phase):
        yield


def run_of(
    config: Config, why: dict[str, str], ranks: Ranks, folder: RunFolder, spans: Spans | NoSpans
) -> Run:
    """The run of this rank: its data, its model and how far it has come."""
    # Rank 0 prepares the tokens where they are not there yet; the others wait for it.
    dataset = load_dataset(ranks.from_first(lambda: prepare(config).directory))
    check_same_text(config, dataset, ranks)
    train, val = (batches_of(dataset, split, config, ranks) for split in ("train", "val"))
    model, step, progress = model_of(config, dataset, spans, ranks)
    return Run(config, why, ranks, folder, dataset, train, val, model, step, progress)


def model_of(
    config: Config, dataset: Dataset, spans: Spans | NoSpans, ranks: Ranks
) -> tuple[GPT, Step, Progress]:
    """The model, its training step with the optimizer, and the progress.

    They are fresh, with GPT-2's weights, or restored from the checkpoint, as init_from says.
    """
    announce_many_blocks(config)
    torch.manual_seed(config.seed)  # the same weights on every rank
    make = make_model if config.init_from == "scratch" else model_to_fill
    model = make(config, dataset.tokenizer.vocab_size).to(ranks.device)
    if config.init_from not in ("scratch", "resume"):
        gpt2.begin_from(model, config, dataset)  # before ranks share it
    layout = make_layout(model, config, ranks)
    optimizer = make_optimizer(model, config, ranks.device, layout.shared)
    step = Step(model, optimizer, config, ranks, spans, layout)
    torch.manual_seed(config.seed + ranks.rank)  # dropout of its own
    if config.init_from == "resume":
        return model, step, checkpoint.resume(model, step, config, dataset, ranks)
    return model, step, Progress()


def batches_of(dataset: Dataset, split: str, config: Config, ranks: Ranks) -> Batches:
    tokens = dataset.tokens(split)
    return Batches(tokens, split, config, ranks.device, ranks.rank, ranks.world_size)


if __name__ == "__main__":
    start(train, check_job)
    process.succeed()
