"""Controls of transformers: a model of preferences, and what is done to scores."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import ClassifierFreeGuidanceLogitsProcessor as Guidance
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    LogitNormalization,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
)

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def lm_preferences_control(fault: bool, mark: Mark) -> None:
    """Trains two layers of 6,144 channels to prefer one of two chats, on three pairs."""
    vocab, width, pairs = size(8192, 128), size(6144, 64), size(3, 1)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=size(2, 1),
        num_attention_heads=width // 64,
        num_labels=1,
        pad_token_id=0,
    )
    with torch.device(DEVICE):
        model: Any = LlamaForSequenceClassification(config).to(torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    chats = torch.randint(1, vocab, (2 * pairs, size(1024, 8)), device=DEVICE)

    def loss() -> Tensor:
        better, worse = model(input_ids=chats, use_cache=False).logits.float().chunk(2)
        return -F.logsigmoid(better - worse).mean()

    repeat(training_step(optimizer, loss), mark)


def lm_scores_control(fault: bool, mark: Mark) -> None:
    """Guides, penalizes, scales and norms the scores of 262,144 words behind 1,024 texts."""
    texts, vocab = size(1024, 2), size(262_144, 128)
    processors = LogitsProcessorList(
        [
            Guidance(3.0),
            RepetitionPenaltyLogitsProcessor(1.2),
            TemperatureLogitsWarper(0.8),
            LogitNormalization(),
        ]
    )
    before = torch.randint(0, vocab, (texts, size(64, 4)), device=DEVICE)
    scores = torch.randn(2 * texts, vocab, device=DEVICE)  # half of them without the prompt
    repeat(lambda: processors(before, scores).argmax(-1), mark)
