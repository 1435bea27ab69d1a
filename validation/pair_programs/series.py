"""Pairs: each program with the plain changes that are measured on it, and its half of the record.

A later series joins by a line in PROGRAMS. It has strata of its own, so that no program of an
earlier series changes its half.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from validation.foreign_programs.series import SERIES as FOREIGN
from validation.framework_programs import series as frameworks
from validation.framework_programs.program import FRAMEWORKS
from validation.framework_programs.program import Program as FrameworkProgram
from validation.pair_programs.built import CHANGES, WORK, Parts
from validation.pair_programs.hidden import HIDDEN
from validation.planted_train import SERIES as PLANTED
from validation.plants.planting import Plant

Source = Literal["built", "foreign", "frameworks", "trainer"]
Half = Literal["first", "second"]
HALF_NAMES: tuple[Half, ...] = ("first", "second")
BEFORE, WITHOUT = "before", "without"  # variants: the program as it is, and without its fault
SEED = "pairs of 2026-11-26"
WORKERS_SETTLE = 18  # steps until what eight workers had prepared is used up
PACKAGES = "torchvision timm transformers pillow"  # of the foreign programs


@dataclass(frozen=True)
class Change:
    """A plain change to a program: the variant's name, and what was expected beforehand."""

    name: str
    kind: str  # the class of the change; of a fault that is taken out, its verdict
    buys_nothing: bool = False  # expected so
    work: float = 1.0  # of a step with the change, in steps before
    settle: int = 2  # steps before each timed block


@dataclass(frozen=True)
class Program:
    """A program and its changes; each makes a pair with the program as it is."""

    name: str
    source: Source
    series: str
    changes: tuple[Change, ...]
    settle: int = 2
    steps: int = 10  # of a capture
    packages: str = ""  # besides torch
    apart: bool = False  # each variant has a process of its own
    large: bool = False  # no two processes at a time have the memory
    starts_s: float = 12  # until it has warmed up
    module: str = "plain"  # of framework_programs
    environ: dict[str, str] = field(default_factory=dict)  # of the program as it is

    @property
    def family(self) -> str:
        """Name that sizes of one program share: they are in the same half."""
        return self.name.split("-")[0]


def changes_of(words: str, settle: int = 2) -> tuple[Change, ...]:
    """Changes by name; a minus behind one says that it is expected to buy nothing."""
    return tuple(
        Change(name, name, word.endswith("-"), WORK.get(name, 1.0), max(settle, extra))
        for word in words.split()
        for name in (word.removesuffix("-"),)
        for extra in (WORKERS_SETTLE if name == "workers" else 0,)
    )


encoder, perceptron = partial(Parts, "encoder"), partial(Parts, "perceptron")
convolutions = partial(Parts, "convolutions")
feeding = partial(encoder, autocast=True, workers=2, batch_ms=2, reads_loss=True, logged=200)
starved = partial(encoder, written_out_attention=True, one_hot_loss=True, reads_loss=True)
small = partial(encoder, 256, optimizer="looped", reads_loss=True, sent=True, tf32=False)
border = partial(encoder, 512, 6, length=256, autocast=True, reads_loss=True, logged=200)
GPU_BOUND = "graphs- workers- pinned- no_log- no_item fused_optimizer"
STARVED = "workers fused_optimizer- flash- fused_loss- bf16- tf32- pinned- no_item-"
LAUNCHING = "graphs fused_optimizer no_item tf32- larger_batch pinned-"
# program, with its size behind a minus -> its parts and its changes
BUILT: dict[str, tuple[Parts, str]] = {
    # the GPU is the bottleneck
    "encoder_fed-1024": (feeding(1024, 8, 16, 512), GPU_BOUND),
    "encoder_fed-2048": (feeding(2048, 6, 16, 512), GPU_BOUND),
    "encoder_fed-long": (feeding(768, 8, 4, 4096), GPU_BOUND),
    "encoder_written-512": (
        feeding(512, 6, 16, 1024, written_out_attention=True, one_hot_loss=True),
        "flash fused_loss graphs- workers- pinned- no_log-",
    ),
    "encoder_written-1024": (
        feeding(1024, 6, 8, 1024, written_out_attention=True, one_hot_loss=True),
        "flash fused_loss graphs- workers- pinned- no_log-",
    ),
    "encoder_floats-1024": (
        encoder(1024, 6, 16, 256, tf32=False, sent=True, logged=200),
        "tf32 bf16 graphs- pinned- no_log- fused_optimizer",
    ),
    "encoder_recomputes-1024": (
        encoder(1024, 8, 16, 512, autocast=True, checkpointing=True, sent=True, logged=200),
        "no_checkpointing pinned- no_log- fused_optimizer larger_batch",
    ),
    "encoder_recomputes-512": (
        encoder(512, 12, 32, 512, autocast=True, checkpointing=True, sent=True, logged=200),
        "no_checkpointing pinned- no_log- fused_optimizer",
    ),
    "convolutions_fed-128": (
        convolutions(128, 8, 64, 56, autocast=True, workers=4, batch_ms=2, logged=200),
        "channels_last graphs workers pinned no_log- fused_optimizer-",
    ),
    "convolutions_kept-64": (
        convolutions(64, 8, 64, 112, autocast=True, logged=200),
        "channels_last graphs- no_log- fused_optimizer-",
    ),
    "perceptron_sent-4096": (
        perceptron(4096, 12, 8192, autocast=True, sent=True, logged=200),
        "pinned graphs- no_log- fused_optimizer",
    ),
    "perceptron_sent-2048": (
        perceptron(2048, 12, 8192, autocast=True, sent=True, logged=200),
        "pinned graphs no_log- fused_optimizer",
    ),
    "perceptron_doubles-2048": (
        perceptron(2048, 4, 4096, doubles=True, sent=True, logged=200),
        "no_doubles graphs- no_log- fused_optimizer-",
    ),
    # the loader is the bottleneck
    "encoder_starved-512": (starved(512, 6, 8, 256, tf32=False, workers=1, batch_ms=80), STARVED),
    "encoder_starved-256": (starved(256, 6, 8, 256, tf32=False, workers=2, batch_ms=100), STARVED),
    "perceptron_starved-1024": (
        perceptron(1024, 8, 1024, tf32=False, workers=2, batch_ms=80, reads_loss=True, logged=200),
        "workers graphs- bf16- tf32- fused_optimizer- pinned- no_item- no_log-",
    ),
    "convolutions_starved-64": (
        convolutions(64, 6, 16, 56, tf32=False, workers=0, batch_ms=60, reads_loss=True),
        "workers channels_last tf32 graphs pinned fused_optimizer",
    ),
    # the host is the bottleneck
    "encoder_small-6": (small(6, 8, 128), f"{LAUNCHING} compiled"),
    "encoder_small-12": (small(12, 4, 128), LAUNCHING),
    "encoder_border-16": (border(batch=16), "graphs fused_optimizer compiled no_item no_log"),
    "encoder_border-32": (border(batch=32), "graphs fused_optimizer no_item no_log larger_batch"),
    "encoder_border-64": (border(batch=64), "graphs fused_optimizer no_item no_log"),
    "convolutions_small-32": (
        convolutions(32, 8, 8, 28, tf32=False, optimizer="looped", reads_loss=True),
        "graphs fused_optimizer channels_last tf32- no_item compiled larger_batch",
    ),
    "perceptron_small-256": (
        perceptron(256, 24, 64, tf32=False, optimizer="looped", reads_loss=True),
        "graphs fused_optimizer tf32- no_item larger_batch",
    ),
    # something else is
    "encoder_checked-256": (
        encoder(256, 6, 8, 128, checks_layers=True, tf32=False),
        "no_checks fused_optimizer tf32",
    ),
    "encoder_checked-1024": (
        encoder(1024, 8, 8, 512, checks_layers=True, autocast=True, logged=200),
        "no_checks fused_optimizer no_log",
    ),
    "convolutions_empties-64": (
        convolutions(64, 8, 32, 56, empties_cache=True, autocast=True, sent=True),
        "no_empty_cache channels_last fused_optimizer pinned",
    ),
    "perceptron_saves-1024": (
        perceptron(1024, 4, 2048, saves=True, reads_loss=True),
        "no_save fused_optimizer graphs no_item",
    ),
    "encoder_evaluates-512": (
        encoder(512, 6, 16, 256, evaluated=6, autocast=True, written_out_attention=True),
        "no_eval flash fused_optimizer",
    ),
    "perceptron_pieces-2048": (
        perceptron(2048, 6, 2048, sent=True, pieces=256, autocast=True),
        "one_copy pinned fused_optimizer",
    ),
    "encoder_logs-512": (
        encoder(512, 4, 8, 256, logged=30_000, autocast=True, reads_loss=True),
        "no_log fused_optimizer graphs no_item",
    ),
}
BUILT |= HIDDEN
SLOW_STARTS = {"compiled": 35.0}  # seconds that a variant takes longer to make
# changes to foreign programs besides taking out the fault; a line is a program
MORE = """
    resnet50_transforms workers fused_optimizer- channels_last- pinned-
    vit_starved_workers workers fused_optimizer-
    resnet18_restarted_workers fused_optimizer channels_last
    convnext_jpegs workers fused_optimizer pinned
    swin_one_worker workers fused_optimizer- pinned-
    bert_tokenised_in_collate workers fused_optimizer
    resnet34_small_files workers fused_optimizer channels_last pinned
    mobilenet_perspective_workers workers fused_optimizer- channels_last-
    gpt2_parses_text fused_optimizer
    regnet_inflates_photos workers fused_optimizer-
    bert_sorts_for_each_batch fused_optimizer
    whisper_extracts_features workers fused_optimizer-
    bert_grad_norms fused_optimizer
    resnet50_statistics_home channels_last fused_optimizer
    vit_tolist_in_blocks fused_optimizer-
    mobilenet_small_batch fused_optimizer channels_last
    efficientnet_few_images fused_optimizer channels_last
    regnet_few_images fused_optimizer
    vit_gc fused_optimizer
    resnet26_sleeps fused_optimizer channels_last
    bert_checksum fused_optimizer
    resnet18_spins fused_optimizer channels_last
    resnet18_pinned_full_link fused_optimizer- channels_last-
    convolution_pageable fused_optimizer-
    resnet18_double_arrays fused_optimizer-
    vit_saved_on_cpu fused_optimizer-
    resnet50_empty_cache fused_optimizer channels_last
    vit_base_large_batch fused_optimizer
    resnet152_float32 fused_optimizer channels_last
    bert_attention_written_out fused_optimizer-
    vit_unfused_gelu fused_optimizer-
    vit_large_float32 fused_optimizer
    mixer_norms_by_hand fused_optimizer-
    deit_takes_weights_from_a_server fused_optimizer
    lightning_spectrograms workers
    lightning_control workers- fused_optimizer
    plain_control fused_optimizer
    plain_channels_first fused_optimizer-
    plain_second_thread fused_optimizer
"""
MORE_OF = {line.split()[0]: line.split(None, 1)[1] for line in MORE.strip().splitlines()}
LARGE = {"bert_dense_table_gradients", "gpt2_loss_by_one_hot", "deit_jitters_whole_pictures"}
# our trainer, eager, of two sizes: its keys, and those that a change replaces
EAGER = "attention=slow kernels=compiled compile=false cuda_graphs=false dropout=0 log_interval=1"
WIDE = f"{EAGER} n_layer=8 n_head=12 n_embd=768 block_size=1024 batch_size=8"
FULL = WIDE.replace("slow", "flash") + " activation_checkpointing=full"
MORE_KEYS = {"flash": "attention=flash", "compiled": "compile=true", "no_log-": "log_interval=10"}
TRAINED: dict[str, tuple[str, dict[str, str]]] = {
    "trainer-char": (EAGER, {"graphs": "cuda_graphs=true", **MORE_KEYS}),
    "trainer-wide": (WIDE, {"graphs-": "cuda_graphs=true", **MORE_KEYS}),
    "trainer_floats-wide": (f"{WIDE} dtype=float32", {"bf16": "dtype=bfloat16"}),
    "trainer_recomputes-wide": (FULL, {"no_checkpointing": "activation_checkpointing=none"}),
}


def built() -> Iterable[Program]:
    for name, (parts, words) in BUILT.items():
        settle = 2 + 2 * (parts.workers or 0)
        changes = changes_of(words, settle)
        starts_s = 10 + sum(SLOW_STARTS.get(change.name, 0) for change in changes)
        series, more_s = ("built 2", 20) if name in HIDDEN else ("built 1", 0)  # for long steps
        yield Program(name, "built", series, changes, settle, starts_s=starts_s + more_s)


def foreign() -> Iterable[Program]:
    for number, programs in FOREIGN.items():
        for each in programs:
            settle = 6 if each.planted == "data" else 2
            first = Change(WITHOUT, each.planted, work=each.work_without, settle=settle)
            changes = (first, *changes_of(MORE_OF.get(each.name, ""), settle))
            series, large = f"foreign {number}", each.name in LARGE
            yield Program(
                each.name, "foreign", series, changes, settle, packages=PACKAGES, large=large
            )


def of_frameworks(series: str, programs: Iterable[FrameworkProgram]) -> Iterable[Program]:
    for each in programs:
        out = Change(WITHOUT, each.planted, work=each.work_without, settle=each.settle)
        more = changes_of(MORE_OF.get(each.name, ""), each.settle)
        if changes := (() if each.control else (out,)) + more:
            yield Program(
                each.name,
                "frameworks",
                series,
                changes,
                each.settle,
                each.steps,
                FRAMEWORKS[each.module][1],
                apart=True,
                starts_s=20,
                module=each.module,
                environ=each.environ,
            )


def of_trainer() -> Iterable[Program]:
    for number, plants in PLANTED.items():
        for name, plant in plants.items():
            if plant.ranks == 1:
                out = (Change(WITHOUT, plant.verdict, work=plant.work_without),)
                yield trained(name, f"planted {number}", out)
    for name, (_, words) in TRAINED.items():
        yield trained(name, "trainer 1", changes_of(" ".join(words)))


def trained(name: str, series: str, changes: tuple[Change, ...]) -> Program:
    return Program(name, "trainer", series, changes, apart=True, starts_s=30)


def words_of(name: str, variant: str) -> tuple[str, Plant | None]:
    """Keys of train.py for a variant of a program of the trainer, and the fault to put into it."""
    plant = next((plants[name] for plants in PLANTED.values() if name in plants), None)
    if plant and variant == WITHOUT:
        return plant.without or plant.keys, None
    if plant:
        return plant.keys, plant
    keys, changes = TRAINED[name]
    changed = {known.removesuffix("-"): word for known, word in changes.items()}
    return f"{keys} {changed.get(variant, '')}", None


PROGRAMS = {
    program.name: program
    for programs in (
        built(),
        foreign(),
        of_frameworks("frameworks 6", frameworks.SIXTH),
        of_trainer(),
    )
    for program in programs
}


def with_change(name: str, variant: str) -> Parts:
    """The parts of a built program's variant."""
    parts, _ = BUILT[name]
    return parts if variant == BEFORE else CHANGES[variant](parts)


def halves(programs: Iterable[Program]) -> dict[str, Half]:
    """Half of each program: families of a series, by class and seeded hash, go to them in turn."""
    families: dict[str, dict[str, str]] = defaultdict(dict)  # series -> family -> its first class
    programs = list(programs)
    for program in programs:
        families[program.series].setdefault(program.family, program.changes[0].kind)
    half_of: dict[tuple[str, str], Half] = {}
    for series, kinds in families.items():
        dealt = list(HALF_NAMES)
        if int(hashed(series), 16) % 2:  # which half gets one more
            dealt.reverse()
        order = sorted(kinds, key=lambda family: (kinds[family], hashed(family)))
        half_of |= {(series, family): dealt[place % 2] for place, family in enumerate(order)}
    return {program.name: half_of[program.series, program.family] for program in programs}


def hashed(name: str) -> str:
    return hashlib.sha256(f"{SEED} {name}".encode()).hexdigest()


HALVES = halves(PROGRAMS.values())
