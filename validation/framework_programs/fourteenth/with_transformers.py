"""Programs of transformers in loops of their own: masks, last words, casts, and speech."""

import torch
from torch import Tensor
from transformers import LlamaConfig, WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.seventh.with_transformers import made
from validation.framework_programs.thirteenth.with_transformers import llama
from validation.framework_programs.torch_parts import DEVICE, bfloats, training_step


def additive(allowed: Tensor) -> Tensor:
    """A mask that is added to scores, of one that says which pairs are allowed."""
    nothing = torch.zeros((), dtype=torch.bfloat16, device=allowed.device)
    return torch.where(allowed, nothing, -torch.inf)


def mask_of(texts: Tensor) -> Tensor:
    """Pairs of words of one text, of which the second is not later; (rows, 1, words, words)."""
    return additive((texts[:, None, :, None] == texts[:, None, None, :]).tril())


def lm_moves_square_masks(fault: bool, mark: Mark) -> None:
    """Moves masks of 4,096 x 4,096 for packed texts; without the fault the texts' numbers.

    268 MB of pageable memory, which the GPU can make of 32,768 numbers.
    """
    vocab, shape = size(8192, 128), (size(8, 2), size(4096, 16))
    model = llama(size(512, 64), 2, vocab)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    words = torch.randint(0, vocab, shape, device=DEVICE)
    texts = torch.randint(0, 8, shape).sort(1).values
    made_before = mask_of(texts) if fault else None

    def loss() -> Tensor:
        mask = mask_of(texts.to(DEVICE)) if made_before is None else made_before.to(DEVICE)
        seen: Tensor = model(input_ids=words, labels=words, attention_mask=mask).loss
        return seen

    repeat(training_step(optimizer, loss), mark)


def lm_scores_all_words(fault: bool, mark: Mark) -> None:
    """Scores what follows prompts by logits behind all words; without it logits_to_keep=1.

    All but one of 2,048 rows of a text are thrown away, each a product with 131,072 words.
    """
    vocab = size(131_072, 128)
    model = llama(size(1024, 64), 2, vocab).eval()
    prompts = torch.randint(0, vocab, (size(8, 2), size(2048, 8)), device=DEVICE)
    kept = {} if fault else {"logits_to_keep": 1}
    with torch.no_grad():
        repeat(lambda: model(input_ids=prompts, use_cache=False, **kept).logits[:, -1], mark)


def lm_casts_weights_each_time(fault: bool, mark: Mark) -> None:
    """Serves float32 weights under autocast; without the fault they were cast once.

    Two billion weights are read and written in another type for 64 words.
    """
    width, vocab = size(8192, 64), size(32_768, 128)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=size(3, 1),
        num_attention_heads=width // 64,
    )
    model = made(config).to(torch.float32 if fault else torch.bfloat16).eval()
    words = torch.randint(0, vocab, (4, 16), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=fault):
            model(input_ids=words, use_cache=False)

    with torch.no_grad():
        repeat(step, mark)


def lm_speech_control(fault: bool, mark: Mark) -> None:
    """Listens to 16 clips of half a minute by two layers of 2,048 channels of Whisper's encoder."""
    width = size(2048, 64)
    config = WhisperConfig(
        d_model=width,
        encoder_layers=size(2, 1),
        encoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        max_source_positions=size(1500, 16),
    )
    with torch.device(DEVICE):
        heard = WhisperEncoder(config).to(torch.bfloat16).eval()
    clips = bfloats(size(16, 2), config.num_mel_bins, 2 * config.max_source_positions)
    with torch.no_grad():
        repeat(lambda: heard(clips), mark)
