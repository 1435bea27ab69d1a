"""Programs of the Trainer of transformers, which has the loop."""

import json
import os
import random
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import Made

VOCAB = size(30_000, 100)
LENGTH = size(256, 16)


class OnStepEnd(TrainerCallback):
    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def on_step_end(self, *given: Any, **more: Any) -> None:
        self.call()


def train(
    mark: Mark,
    batch: int,
    collate: Callable[[list[Tensor]], dict[str, Tensor]],
    after: Callable[[], object] | None = None,
    bfloat16: bool = True,
) -> None:
    """Train a BERT on random words; `after` runs behind each step."""
    width = size(768, 64)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        num_hidden_layers=size(6, 1),
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    calls = [OnStepEnd(call) for call in (after, mark) if call]
    with TemporaryDirectory(prefix="trainer-") as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=size(batch, 2),
            max_steps=1_000_000,
            bf16=bfloat16 and size(True, False),
            use_cpu=size(False, True),
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        text = torch.randint(5, VOCAB, (1_000, LENGTH))
        Trainer(
            BertForMaskedLM(config),
            arguments,
            data_collator=collate,
            train_dataset=Made(lambda index: text[index % 1_000]),
            callbacks=calls,
        ).train()


def stack(rows: list[Tensor]) -> dict[str, Tensor]:
    words = torch.stack(rows)
    return {"input_ids": words, "labels": words}


def corrupt_spans(rows: list[Tensor]) -> dict[str, Tensor]:
    """Cover spans of words, word by word in Python."""
    covered = []
    for row in rows:
        words = row.tolist()
        for _ in range(len(words) // 6):
            start, length = random.randrange(len(words)), random.choice((1, 2, 3, 5))
            words = [4 if start <= i < start + length else word for i, word in enumerate(words)]
        covered.append(words)
    return {"input_ids": torch.tensor(covered), "labels": torch.stack(rows)}


def hf_corrupts_spans(fault: bool, mark: Mark) -> None:
    """Collates in the main process, in Python."""
    train(mark, 64, corrupt_spans if fault else stack)


def hf_writes_statistics(fault: bool, mark: Mark) -> None:
    """Appends statistics to a file after each step and flushes it to the disk."""
    values = {f"layer.{i}.attention.mean": random.random() for i in range(40_000)}
    with TemporaryDirectory(prefix="statistics-") as folder:

        def write() -> None:
            with open(f"{folder}/log.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
                file.flush()
                os.fsync(file.fileno())

        train(mark, 32, stack, write if fault else None)


def hf_float32(fault: bool, mark: Mark) -> None:
    """No bf16=True."""
    train(mark, 64, stack, bfloat16=not fault)
