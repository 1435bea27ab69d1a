"""Planted: the GPU itself has too much to multiply, to move, or too little at a time."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer, SparseAdam

from validation.foreign_programs.parts import (
    CLASSES,
    DEVICE,
    GPT2_VOCAB,
    Step,
    bert,
    gpt2,
    graph_of,
    images,
    replay_step,
    timm_model,
    tokens,
    torchvision_model,
    training_step,
)


def vit_base_large_batch(fault: bool) -> Step:
    """Batches of 128 images instead of 16."""
    step = training_step(timm_model("vit_base_patch16_224"))
    x, y = images(128 if fault else 16)
    return lambda: step(x, y)


def resnet152_float32(fault: bool) -> Step:
    """No autocast."""
    step = training_step(torchvision_model("resnet152"), amp=not fault)
    x, y = images(64)
    return lambda: step(x, y)


def bert_large_float32(fault: bool) -> Step:
    """Matrix products in float32; without the fault in TF32."""
    torch.set_float32_matmul_precision("highest" if fault else "high")
    step = training_step(bert(8, 1024), amp=False)
    x = tokens(16, 256)
    return lambda: step(x, x)


def wide_convolutions(fault: bool) -> Step:
    """Six convolutions of 512 channels instead of 64."""
    width = 512 if fault else 64
    layers = [nn.Conv2d(width, width, 5, padding=2) for _ in range(6)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)]
    step = training_step(nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *layers, *head))
    x, y = images(32, 64)
    return lambda: step(x, y)


def vit_large_float32(fault: bool) -> Step:
    """Matrix products in float32; without the fault in TF32."""
    torch.set_float32_matmul_precision("highest" if fault else "high")
    step = training_step(timm_model("vit_large_patch16_224"), amp=False)
    x, y = images(32)
    return lambda: step(x, y)


def bert_attention_written_out(fault: bool) -> Step:
    """The attention scores of 1,024 tokens, written to memory."""
    model = bert(
        4,
        512,
        num_attention_heads=16,
        intermediate_size=1024,
        max_position_embeddings=1024,
        attn_implementation="eager" if fault else "sdpa",
    )
    step = training_step(model)
    x = tokens(32, 1024)
    return lambda: step(x, x)


class SpelledOutGELU(nn.Module):
    """GELU in float32, with a kernel for each operator."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def vit_unfused_gelu(fault: bool) -> Step:
    """GELU spelled out in float32."""
    activation = SpelledOutGELU if fault else nn.GELU
    step = training_step(timm_model("vit_small_patch16_224", act_layer=activation))
    x, y = images(256)
    return lambda: step(x, y)


class ScaledNorm(nn.Module):
    """Norm that is followed by six products and sums in float32."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x).float()
        for _ in range(6):
            x = x * 1.0001 + 0.0001
        return x.to(torch.bfloat16)


def llama_norms_by_hand(fault: bool) -> Step:
    """Twelve additional element-wise kernels after each norm."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=8,
    )
    model = LlamaForCausalLM(config)
    if fault:
        for layer in model.model.layers:
            layer.input_layernorm = ScaledNorm(layer.input_layernorm)
            layer.post_attention_layernorm = ScaledNorm(layer.post_attention_layernorm)
    step = training_step(model)
    x = tokens(32, 1024, 1000)
    return lambda: step(x, x)


def gpt2_eager_attention(fault: bool) -> Step:
    """The attention scores of 1,024 tokens, written to memory."""
    attention = "eager" if fault else "sdpa"
    options = {"n_embd": 256, "n_head": 16, "vocab_size": 2048}
    step = training_step(gpt2(4, attn_implementation=attention, **options))
    x = tokens(24, 1024, 2048)
    return lambda: step(x, x)


class NormTwice(nn.Module):
    """Norm that is followed by another norm, tanh and a scale, spelled out in float32."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x).float()
        deviation = (x.var(-1, keepdim=True) + 1e-6).sqrt()
        return ((x - x.mean(-1, keepdim=True)) / deviation * 1.0 + 0.0).tanh() * 0.5 + 0.5


def mixer_norms_by_hand(fault: bool) -> Step:
    """A norm and a tanh, spelled out, after each norm."""
    model = timm_model("mixer_s16_224")
    if fault:
        for block in model.get_submodule("blocks").children():
            for name in ("norm1", "norm2"):
                setattr(block, name, NormTwice(block.get_submodule(name)))
    step = training_step(model)
    x, y = images(256)
    return lambda: step(x, y)


def graph_inference(model: nn.Module, x: Tensor, replayed: int) -> Step:
    """Step that replays a CUDA graph of the inference on `x` `replayed` times."""
    model = model.to(DEVICE).eval()
    return replay_step(graph_of(lambda: model(x)), replayed)


def resnet18_graph_of_one(fault: bool) -> Step:
    """A CUDA graph of one image instead of 256."""
    x = torch.randn(1 if fault else 256, 3, 64, 64, device=DEVICE)
    return graph_inference(torchvision_model("resnet18"), x, 10)


def mobilenet_graph_of_one(fault: bool) -> Step:
    """A CUDA graph of one image instead of 512."""
    x = torch.randn(1 if fault else 512, 3, 96, 96, device=DEVICE)
    return graph_inference(torchvision_model("mobilenet_v3_small"), x, 8)


def gpt2_graph_of_one(fault: bool) -> Step:
    """A CUDA graph of one token instead of 512 times 16."""
    model = gpt2(12).to(DEVICE).eval().to(torch.bfloat16)
    x = tokens(1 if fault else 512, 1 if fault else 16, GPT2_VOCAB)
    return replay_step(graph_of(lambda: model(x, use_cache=False)), 8)


def gpt2_scores_every_position(fault: bool) -> Step:
    """Scores the next token at each of 1,024 positions; without the fault at the last alone."""
    model = gpt2(2, n_embd=1024, n_head=16).to(DEVICE).eval().to(torch.bfloat16)
    x = tokens(32, 1024, GPT2_VOCAB)
    transformer, head = model.get_submodule("transformer"), model.get_submodule("lm_head")

    def infer() -> None:
        with torch.no_grad():
            hidden = transformer(x, use_cache=False).last_hidden_state
            head(hidden if fault else hidden[:, -1:])[:, -1].argmax(-1)

    return infer


def gpt2_loss_by_one_hot(fault: bool) -> Step:
    """Cross entropy as a product with one-hot targets, a number for each word of the vocabulary."""
    model = gpt2(2, n_embd=256, n_head=4).to(DEVICE)
    optimizer = AdamW(model.parameters(), 1e-4)
    x = tokens(16, 512, GPT2_VOCAB)

    def loss_of(logits: Tensor) -> Tensor:
        if not fault:
            return F.cross_entropy(logits.flatten(0, 1), x.flatten())
        targets = F.one_hot(x, GPT2_VOCAB).float()
        return -(targets * logits.float().log_softmax(-1)).sum(-1).mean()

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model(x).logits)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def bert_dense_table_gradients(fault: bool) -> Step:
    """A dense gradient, and so AdamW, for all four million rows of a table of embeddings."""
    model = bert(4, 256).to(DEVICE)
    table = nn.Embedding(4_000_000, 256, device=DEVICE, sparse=not fault)
    optimizers: list[Optimizer] = [AdamW(model.parameters(), 1e-4)]
    optimizers.append((AdamW if fault else SparseAdam)(table.parameters(), 1e-4))
    ids, x = tokens(16, 128, 4_000_000), tokens(16, 128)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            out = model(inputs_embeds=table(ids)).logits
            loss = F.cross_entropy(out.flatten(0, 1), x.flatten())
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def mixer_trains_two_images_in_a_graph(fault: bool) -> Step:
    """A CUDA graph of training on two images instead of 256."""
    model = timm_model("mixer_s32_224")
    step = training_step(model, lambda p: AdamW(p, 1e-4, fused=True, capturable=True))
    x, y = images(2 if fault else 256)
    return replay_step(graph_of(lambda: step(x, y), training=True), 4)


def vit_large_probed_with_gradients(fault: bool) -> Step:
    """Gradients of all weights, of which the head alone is trained."""
    model = timm_model("vit_large_patch16_224").to(DEVICE).train()
    head = model.get_submodule("head")
    if not fault:
        model.requires_grad_(False)
        head.requires_grad_(True)
    optimizer = AdamW(head.parameters(), 1e-3)
    x, y = images(32)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        model.zero_grad()

    return step


def deit_jitters_whole_pictures(fault: bool) -> Step:
    """Jitters the colours of whole pictures, then crops; without the fault it crops first."""
    from torchvision import transforms

    model = timm_model("deit_tiny_patch16_224").to(DEVICE).eval().to(torch.bfloat16)
    pictures = torch.randint(0, 256, (128, 3, 1024, 1024), dtype=torch.uint8, device=DEVICE)
    jitter = [transforms.ConvertImageDtype(torch.float32), transforms.ColorJitter(0.4, 0.4, 0.4)]
    crop = transforms.RandomCrop(224)
    augment = transforms.Compose([*jitter, crop] if fault else [crop, *jitter])

    def infer() -> None:
        with torch.no_grad():
            model(augment(pictures).to(torch.bfloat16))

    return infer


def orthogonalise(x: Tensor) -> Tensor:
    """Matrices after Muon's five Newton-Schulz steps, (matrices, rows, columns)."""
    x = x.to(torch.bfloat16)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        product = x @ x.mT
        x = 3.4445 * x + (2.0315 * product @ product - 4.775 * product) @ x
    return x


def vit_muon_matrix_by_matrix(fault: bool) -> Step:
    """A CUDA graph of training with Muon, each matrix alone instead of all of one shape at once."""
    model = timm_model("vit_tiny_patch16_224").to(DEVICE).train()
    matrices = [p for p in model.get_submodule("blocks").parameters() if p.ndim == 2]
    shapes = {matrix.shape for matrix in matrices}
    alike = [[matrix for matrix in matrices if matrix.shape == shape] for shape in shapes]
    groups = [[matrix] for matrix in matrices] if fault else alike
    x, y = images(16)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for group in groups:
                updates = orthogonalise(torch.stack([m.grad for m in group if m.grad is not None]))
                for matrix, update in zip(group, updates, strict=True):
                    matrix.sub_(update, alpha=0.01)
        model.zero_grad()

    return replay_step(graph_of(step, training=True), 2)
