"""Programs of transformers and accelerate: `python hugging_face.py NAME`."""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)

STEPS = 120
VOCAB, LENGTH = 512, 64


def fit(model: PreTrainedModel, **arguments: object) -> None:
    texts = torch.randint(0, VOCAB, (STEPS * 16, LENGTH))
    rows = [{"input_ids": text, "labels": text} for text in texts]
    trainer = Trainer(
        model,
        TrainingArguments(
            "made",
            max_steps=STEPS,
            per_device_train_batch_size=8,
            use_cpu=not torch.cuda.is_available(),
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **arguments,
        ),
        train_dataset=rows,
    )
    print(f"loss {trainer.train().training_loss:.5f}")


def gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=2, n_embd=128, vocab_size=VOCAB, n_positions=2 * LENGTH)
    )


def trainer_gpt2() -> None:
    fit(gpt2())


def trainer_bert() -> None:
    """Gradients of two batches added up."""
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = BertForMaskedLM(BertConfig(vocab_size=VOCAB, intermediate_size=256, **sizes))
    fit(model, gradient_accumulation_steps=2)


def trainer_llama() -> None:
    """Workers of the loader, bfloat16 on a GPU, clipping."""
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, intermediate_size=256, **sizes))
    fit(model, dataloader_num_workers=2, bf16=torch.cuda.is_available(), max_grad_norm=0.5)


def generate() -> None:
    """Tokens of a model that was not trained: a step is a token."""
    model = gpt2().to("cuda" if torch.cuda.is_available() else "cpu").eval()
    prompt = torch.arange(4, device=model.device)[None]
    made = model.generate(
        prompt, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False, pad_token_id=0
    )
    print(made[0].tolist())


def accelerate() -> None:
    """Gradients of four batches added up by accelerate."""
    from accelerate import Accelerator

    accelerator = Accelerator(gradient_accumulation_steps=4)
    model: nn.Module = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(STEPS * 4 * 8, 256)), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for number, (x,) in enumerate(loader):
        with accelerator.accumulate(model):
            loss: Tensor = (model(x) - x).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if number % 80 == 79:
            accelerator.print(f"batch {number}: loss {loss.item():.6f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
