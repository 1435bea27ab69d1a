"""Programs of accelerate that train on the CPU."""

import io
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from PIL import Image, ImageEnhance, ImageFilter
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from validation.framework_programs.parts import Mark
from validation.framework_programs.torch_parts import Made, endless, residual_mlp


def accelerate_scores_by_sklearn(fault: bool, mark: Mark) -> None:
    """Scores the last 100,000 answers by scikit-learn behind each step."""
    accelerator = Accelerator(cpu=True)
    x, y = torch.randn(20_000, 128), torch.randint(2, (20_000,)).float()
    layers = nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)
    model, loader = nn.Sequential(*layers), DataLoader(TensorDataset(x, y), batch_size=256)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    answers, truths = np.random.rand(100_000), np.random.randint(0, 2, 100_000)
    for inputs, wanted in endless(loader):
        outputs = model(inputs).squeeze(1)
        accelerator.backward(F.binary_cross_entropy_with_logits(outputs, wanted))
        optimizer.step()
        optimizer.zero_grad()
        if fault:
            answers = np.append(answers[256:], accelerator.gather(outputs.detach()).numpy())
            truths = np.append(truths[256:], wanted.numpy())
            truths = truths[-len(answers) :]
            roc_auc_score(truths, answers)
            average_precision_score(truths, answers)
        mark()


def accelerate_accumulates_single_samples(fault: bool, mark: Mark) -> None:
    """Accumulates gradients of 24 batches of one sample; without the fault a batch has all 24."""
    samples, batches = (1, 24) if fault else (24, 1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=batches)
    model = residual_mlp(128, 4)
    loader = DataLoader(TensorDataset(torch.randn(12_000, 128)), batch_size=samples)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (x,) in endless(loader):
        with accelerator.accumulate(model):
            accelerator.backward(F.mse_loss(model(x), x))
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            mark()


def augmented(photo: bytes) -> Tensor:
    """Read, turn, cut, colour and blur a photo."""
    picture = Image.open(io.BytesIO(photo)).convert("RGB")
    picture = picture.rotate(np.random.uniform(-15, 15), Image.Resampling.BICUBIC)
    left, top = np.random.randint(0, 64, 2).tolist()
    picture = picture.crop((left, top, left + 320, top + 320))
    picture = picture.resize((64, 64), Image.Resampling.LANCZOS)
    for kind in (ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Brightness):
        picture = kind(picture).enhance(np.random.uniform(0.6, 1.4))
    picture = picture.filter(ImageFilter.GaussianBlur(np.random.uniform(0.1, 2)))
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255


def accelerate_augments_with_one_worker(fault: bool, mark: Mark) -> None:
    """One worker augments photos by Pillow for a small network; else they are ready."""
    photos = []
    for _ in range(32):
        made, pixels = io.BytesIO(), np.random.randint(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((384, 384)).save(made, "jpeg")
        photos.append(made.getvalue())
    ready = torch.rand(32, 3, 64, 64)

    def make(index: int) -> tuple[Tensor, int]:
        return augmented(photos[index % 32]) if fault else ready[index % 32], index % 10

    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    loader = DataLoader(Made(make), batch_size=16, num_workers=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in endless(loader):
        accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        mark()


def accelerate_saves_its_state(fault: bool, mark: Mark) -> None:
    """Saves all of accelerate's state, and the model by itself, behind each second step."""
    with TemporaryDirectory(prefix="states-", dir=".") as folder:
        kept = ProjectConfiguration(folder, automatic_checkpoint_naming=True, total_limit=2)
        accelerator = Accelerator(cpu=True, project_config=kept)
        model = residual_mlp(512, 5)
        loader = DataLoader(TensorDataset(torch.randn(12_000, 512)), batch_size=8)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for number, (x,) in enumerate(endless(loader), 1):
            accelerator.backward(F.mse_loss(model(x), x))
            optimizer.step()
            optimizer.zero_grad()
            if fault and number % 2 == 0:
                accelerator.save_state()
                accelerator.save_model(model, f"{folder}/best")
            mark()
