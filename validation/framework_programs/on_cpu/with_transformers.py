"""Programs of transformers that train on the CPU: its Trainer, and PEFT's adapters."""

import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from validation.framework_programs.parts import Mark, repeat
from validation.framework_programs.torch_parts import Made, endless, training_step

VOCAB = 2_000


class Marks(TrainerCallback):
    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    def on_step_end(self, *given: Any, **more: Any) -> None:
        self.mark()


def train(
    model: nn.Module, length: int, batch: int, mark: Mark, *more: TrainerCallback, **arguments: Any
) -> None:
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
            report_to=[],
            disable_tqdm=True,
            **{"logging_strategy": "no", **arguments},
        )
        Trainer(
            model, given, train_dataset=rows, eval_dataset=rows[:48], callbacks=[*more, Marks(mark)]
        ).train()


def small_bert(kind: Any = BertForMaskedLM) -> nn.Module:
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=512,
    )
    model: nn.Module = kind(config)
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


def documents_tokenized_in_the_loop(fault: bool, mark: Mark) -> None:
    """Tokenizes whole documents in each step and keeps 64 words of each; else they are numbers."""
    known = {word: n for n, word in enumerate(["[PAD]", "[UNK]", *(f"w{n}" for n in range(1_900))])}
    pieces = Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    pieces.normalizer, pieces.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.Whitespace(),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="[PAD]")
    words = list(known)[2:]
    documents = [" ".join(random.choices(words, k=4_000)) for _ in range(32)]
    made = Made(lambda index: (documents[index % 32], index % 2))
    asked = {"padding": True, "truncation": True, "max_length": 64, "return_tensors": "pt"}
    ready = tokenizer(documents[:8], **asked)
    model = small_bert(BertForSequenceClassification)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for texts, labels in endless(DataLoader(made, batch_size=8)):
        batch = tokenizer(list(texts), **asked) if fault else ready
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


def padded_to_the_longest_of_all(fault: bool, mark: Mark) -> None:
    """Pads each text to the 256 words of the longest; without the fault to those of its batch."""

    def collate(texts: list[Tensor]) -> tuple[Tensor, Tensor]:
        words = pad_sequence(texts, batch_first=True)
        words = F.pad(words, (0, 256 - words.shape[1])) if fault else words
        return words, (words != 0).long()

    made = Made(lambda index: torch.randint(1, VOCAB, (24 + index % 24,)))
    model = small_bert(BertForSequenceClassification)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    labels = torch.arange(8) % 2
    for words, shown in endless(DataLoader(made, batch_size=8, collate_fn=collate)):
        model(input_ids=words, attention_mask=shown, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


def small_gpt() -> nn.Module:
    config = GPT2Config(vocab_size=VOCAB, n_positions=128, n_embd=128, n_layer=2, n_head=2)
    model: nn.Module = GPT2LMHeadModel(config)
    return model


class Writes(TrainerCallback):
    """Lets the model write a text behind each step, to be looked at."""

    def on_step_end(self, *given: Any, model: Any, **more: Any) -> None:
        words = torch.randint(5, VOCAB, (1, 4))
        model.generate(words, max_new_tokens=24, do_sample=True, pad_token_id=0)


def hf_generates_each_step(fault: bool, mark: Mark) -> None:
    """Generates a text of 24 words behind each step of the Trainer."""
    train(small_gpt(), 64, 4, mark, *([Writes()] if fault else []))


class Answers(BaseHTTPRequestHandler):
    """A tracking server, which answers in 60 ms."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.06)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        pass


class Posts(TrainerCallback):
    """Sends each row of the log to the server and waits for its answer."""

    def __init__(self, server: HTTPServer) -> None:
        self.address = f"http://127.0.0.1:{server.server_port}"

    def on_log(self, *given: Any, logs: dict[str, float], **more: Any) -> None:
        with urlopen(self.address, json.dumps(logs).encode()) as answer:
            answer.read()


def hf_posts_each_loss(fault: bool, mark: Mark) -> None:
    """Logs in each step, and posts what is logged; without the fault it is not posted."""
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    posts = [Posts(server)] if fault else []
    train(small_gpt(), 64, 4, mark, *posts, logging_strategy="steps", logging_steps=1)


def edits(one: list[int], other: list[int]) -> int:
    """Least number of words to change, add or leave out, until one text is the other."""
    row = list(range(len(other) + 1))
    for i, word in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, wanted in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != wanted))
    return row[-1]


def peft_rewards_by_edits(fault: bool, mark: Mark) -> None:
    """Rewards words that are drawn by their edits to a text, in Python; else by equal words."""
    config = LlamaConfig(
        vocab_size=500,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    chosen = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(LlamaForCausalLM(config), chosen)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4)
    texts = torch.randint(500, (4, 192))

    def step() -> None:
        chances = torch.distributions.Categorical(logits=model(input_ids=texts).logits)
        drawn = chances.sample()
        if fault:
            pairs = zip(drawn.tolist(), texts.tolist(), strict=True)
            rewards = torch.tensor([-edits(one, other) / 192 for one, other in pairs])
        else:
            rewards = (drawn == texts).float().mean(1)
        advantages = (rewards - rewards.mean())[:, None]
        (-chances.log_prob(drawn) * advantages).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)


def bert_in_half_precision(fault: bool, mark: Mark) -> None:
    """Computes a BERT under autocast to float16, as on a GPU; without the fault in float32."""
    model, texts = small_bert(), torch.randint(5, VOCAB, (4, 40))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step() -> None:
        with torch.autocast("cpu", torch.float16, enabled=fault):
            loss = model(input_ids=texts, labels=texts).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)


def vit_control(fault: bool, mark: Mark) -> None:
    """A vision transformer of three layers on pictures that are in memory."""
    config = ViTConfig(
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        image_size=64,
        patch_size=8,
        num_labels=10,
    )
    model, pictures = ViTForImageClassification(config), torch.rand(16, 3, 64, 64)
    optimizer, labels = torch.optim.AdamW(model.parameters(), fused=True), torch.arange(16) % 10

    repeat(training_step(optimizer, lambda: model(pixel_values=pictures, labels=labels).loss), mark)
