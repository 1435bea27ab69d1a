"""Training of an image model of timm: `python vision.py [NAME]`."""

import sys

import timm
import torch
import torch.nn.functional as F

STEPS = 120
ON_GPU = torch.cuda.is_available()
DEVICE, BATCH, EDGE = ("cuda", 32, 224) if ON_GPU else ("cpu", 2, 64)


def main(name: str) -> None:
    model = timm.create_model(name, num_classes=10).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for step in range(STEPS):
        x = torch.randn(BATCH, 3, EDGE, EDGE, device=DEVICE)
        y = torch.randint(0, 10, (BATCH,), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=ON_GPU):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19:
            print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(sys.argv[1] if len(sys.argv) > 1 else "resnet18")
