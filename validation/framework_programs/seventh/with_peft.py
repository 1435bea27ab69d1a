"""Programs of PEFT: low-rank adapters in a Llama."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step

VOCAB = size(8_192, 128)


def adapted(width: int, layers: int) -> torch.nn.Module:
    """A model in bfloat16 with adapters at all of its linear layers."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
    )
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    adapters = LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")
    made: torch.nn.Module = get_peft_model(model, adapters, autocast_adapter_dtype=False)
    return made


def lora_apart(fault: bool, mark: Mark) -> None:
    """Serves short prompts with the adapters apart; without the fault merged into the weights.

    Each linear layer becomes three small products and two sums, each with a launch.
    """
    model = adapted(size(512, 64), size(12, 1)).eval()
    model = model if fault else model.merge_and_unload()  # type: ignore[operator]
    words = torch.randint(0, VOCAB, (4, 16), device=DEVICE)
    with torch.no_grad():
        repeat(lambda: model(input_ids=words, use_cache=False), mark)


def lora_control(fault: bool, mark: Mark) -> None:
    """Trains the adapters of a wide model on long texts."""
    model = adapted(size(3072, 64), size(6, 1)).train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4)
    words = torch.randint(0, VOCAB, (size(8, 2), size(1024, 8)), device=DEVICE)
    repeat(training_step(optimizer, lambda: model(input_ids=words, labels=words).loss), mark)
