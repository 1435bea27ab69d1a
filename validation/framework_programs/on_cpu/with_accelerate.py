"""Programs of accelerate that train on the CPU."""

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from validation.framework_programs.parts import Mark
from validation.framework_programs.torch_parts import endless, residual_mlp


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
