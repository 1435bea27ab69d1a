"""Programs of the Trainer of transformers: chats, predictions, and emptied caches."""

import random
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, Made
from validation.framework_programs.with_hf_trainer import OnStepEnd, stack

VOCAB = size(8_192, 128)
TEMPLATE = "{% for turn in messages %}{{ turn['role'] }} : {{ turn['content'] }} [END] {% endfor %}"


def llama(width: int, layers: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=size(3, 2) * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
    )
    with torch.device(DEVICE):
        return LlamaForCausalLM(config)


def fixed_words(length: int) -> Dataset[Tensor]:
    """Texts of one length, of words that were drawn before."""
    text = torch.randint(0, VOCAB, (64, length))
    return Made(lambda index: text[index % 64])


def trainer(
    model: LlamaForCausalLM,
    texts: Dataset[Tensor] | list[Tensor],
    folder: str,
    after: Callable[[], object] | None = None,
    preprocess: Callable[[Any, Any], Any] | None = None,
    **arguments: Any,
) -> Trainer:
    """A Trainer in bfloat16 that neither saves nor logs."""
    chosen = TrainingArguments(
        folder,
        max_steps=1_000_000,
        bf16=size(True, False),
        use_cpu=size(False, True),
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **arguments,
    )
    return Trainer(
        model,
        chosen,
        data_collator=stack,
        train_dataset=texts,
        callbacks=[OnStepEnd(after)] if after else [],
        preprocess_logits_for_metrics=preprocess,
    )


def train(
    model: LlamaForCausalLM, texts: Dataset[Tensor], mark: Mark, batch: int, **more: Any
) -> None:
    with TemporaryDirectory(prefix="trainer-") as folder:
        trainer(model, texts, folder, mark, per_device_train_batch_size=batch, **more).train()


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """Words that are numbers, and a template of chats."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[END]": 2} | {f"w{i}": i for i in range(3, VOCAB)}
    words = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", chat_template=TEMPLATE
    )


def hf_renders_chats(fault: bool, mark: Mark) -> None:
    """A worker renders and tokenizes each chat as it is read; without the fault it was before.

    A chat is a template of Jinja over 40 turns, and then a thousand words.
    """
    tokenizer, length = chat_tokenizer(), size(512, 16)

    def turn(number: int) -> dict[str, str]:
        words = random.choices(range(3, VOCAB), k=25)
        return {
            "role": ("user", "assistant")[number % 2],
            "content": " ".join(f"w{i}" for i in words),
        }

    chats = [[turn(number) for number in range(size(40, 2))] for _ in range(size(64, 4))]

    def read(index: int) -> Tensor:
        rendered = tokenizer.apply_chat_template(
            chats[index % len(chats)],
            padding="max_length",
            truncation=True,
            max_length=length,
            return_tensors="pt",
            return_dict=True,
        )
        words: Tensor = rendered["input_ids"][0]
        return words

    ready = [read(index) for index in range(len(chats))]
    made = Made(read if fault else lambda index: ready[index % len(ready)])
    train(llama(256, size(2, 1)), made, mark, size(32, 2), dataloader_num_workers=1)


def hf_empties_cache(fault: bool, mark: Mark) -> None:
    """Trains with torch_empty_cache_steps=1; without the fault the cache is never emptied.

    All gradients, 3 GB in large arrays, go back to the driver before each backward pass.
    """
    model = llama(size(2048, 64), size(14, 1))
    often = {"torch_empty_cache_steps": 1} if fault else {}
    train(model, fixed_words(size(256, 8)), mark, 1, **often)


def hf_predicts_all_logits(fault: bool, mark: Mark) -> None:
    """Predicts four batches as the Trainer does by default; without the fault their best words.

    268 MB of logits go to new pageable memory, of which a metric needs the best of each word.
    """
    model = llama(size(512, 64), size(2, 1))
    batch = size(16, 2)
    texts = list(torch.randint(0, VOCAB, (4 * batch, size(128, 8))))
    preprocess = None if fault else lambda logits, labels: logits.argmax(-1)
    with TemporaryDirectory(prefix="trainer-") as folder:
        predicting = trainer(
            model, texts, folder, preprocess=preprocess, per_device_eval_batch_size=batch
        )
        repeat(lambda: predicting.predict(texts), mark)


def hf_wide_control(fault: bool, mark: Mark) -> None:
    """Trains two layers of 4,096 channels in bfloat16, on 16,384 words at a time."""
    train(llama(size(4096, 64), size(2, 1)), fixed_words(size(1024, 8)), mark, size(16, 2))
