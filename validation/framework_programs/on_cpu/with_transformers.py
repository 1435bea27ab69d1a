"""Programs of transformers that train on the CPU: its Trainer, and PEFT's adapters."""

from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from validation.framework_programs.parts import Mark

VOCAB = 2_000


class Marks(TrainerCallback):
    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    def on_step_end(self, *given: Any, **more: Any) -> None:
        self.mark()


def train(model: nn.Module, length: int, batch: int, mark: Mark, **arguments: Any) -> None:
    """Train on random words; 48 texts are there to evaluate on."""
    texts = torch.randint(5, VOCAB, (2_000, length))
    rows = [{"input_ids": text, "labels": text} for text in texts]
    with TemporaryDirectory(prefix="trainer-") as folder:
        given = TrainingArguments(
            folder,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=batch,
            max_steps=1_000_000,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **arguments,
        )
        Trainer(
            model, given, train_dataset=rows, eval_dataset=rows[:48], callbacks=[Marks(mark)]
        ).train()


def small_bert() -> nn.Module:
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
    )
    model: nn.Module = BertForMaskedLM(config)
    return model


def hf_evaluates_each_third_step(fault: bool, mark: Mark) -> None:
    """The Trainer evaluates on 48 texts behind each third step."""
    often = {"eval_strategy": "steps", "eval_steps": 3} if fault else {}
    train(small_bert(), 64, 8, mark, **often)


def hf_attention_written_out(fault: bool, mark: Mark) -> None:
    """Attention over 384 words as products and a softmax; without the fault it is one operator."""
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=384,
        n_embd=64,
        n_layer=2,
        n_head=8,
        attn_pdrop=0,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_implementation="eager" if fault else "sdpa",
    )
    train(GPT2LMHeadModel(config), 384, 4, mark)


def hf_control(fault: bool, mark: Mark) -> None:
    """A small BERT, without evaluation, saving and logging."""
    train(small_bert(), 128, 8, mark)


def lora_llama_control(fault: bool, mark: Mark) -> None:
    """Adapters of rank eight in a small Llama."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    chosen = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    train(get_peft_model(LlamaForCausalLM(config), chosen), 96, 8, mark)
