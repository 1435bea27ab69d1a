"""Planted: the batch is late. `fault=False` makes it in next to no time."""

import io
import itertools
import random
import re
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset, Sampler

from validation.foreign_programs.parts import (
    BERT_VOCAB,
    CLASSES,
    DEVICE,
    Photos,
    Step,
    bert,
    gpt2,
    loader_step,
    no_work,
    timm_model,
    tokens,
    torchvision_model,
    training_step,
)
from validation.framework_programs.torch_parts import endless


def resnet50_transforms(fault: bool) -> Step:
    """Crops, colours and blurs its images in the main process."""
    from torchvision import transforms

    step = training_step(torchvision_model("resnet50"))
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.ColorJitter(0.4, 0.4, 0.4),
            transforms.GaussianBlur(9),
        ]
    )
    photos = Photos(augment if fault else no_work)
    return loader_step(step, DataLoader(photos, batch_size=32, num_workers=0))


def vit_starved_workers(fault: bool) -> Step:
    """Two workers that sleep 4 ms for each image."""
    step = training_step(timm_model("vit_small_patch16_224"))
    photos = Photos(lambda x: time.sleep(0.004 if fault else 0))
    loader = DataLoader(photos, batch_size=32, num_workers=2, pin_memory=True)
    return loader_step(step, loader, non_blocking=True)


def resnet18_restarted_workers(fault: bool) -> Step:
    """Four workers that start anew after each epoch of two batches, which is a step here."""
    step = training_step(torchvision_model("resnet18"))
    loader = DataLoader(
        Photos(no_work, count=64),
        batch_size=32,
        num_workers=4,
        pin_memory=True,
        persistent_workers=not fault,
    )
    batches = endless(loader)

    def epoch() -> None:
        for x, y in itertools.islice(batches, 2):
            step(x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True))

    return epoch


class Jpegs(Dataset[tuple[Tensor, int]]):
    """One JPEG of noise, decoded and made smaller each time, or a ready image without `decode`."""

    def __init__(self, decode: bool) -> None:
        from PIL import Image

        file = io.BytesIO()
        noise = (np.random.rand(500, 500, 3) * 255).astype("uint8")
        Image.fromarray(noise).save(file, "JPEG")
        self.jpeg, self.decode, self.ready = file.getvalue(), decode, torch.rand(3, 224, 224)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        if not self.decode:
            return self.ready, index % CLASSES
        image = Image.open(io.BytesIO(self.jpeg)).convert("RGB").resize((224, 224))
        pixels = torch.from_numpy(np.asarray(image).copy())
        return pixels.permute(2, 0, 1).float() / 255, index % CLASSES


def convnext_jpegs(fault: bool) -> Step:
    """Decodes JPEGs in the main process."""
    step = training_step(torchvision_model("convnext_tiny"))
    return loader_step(step, DataLoader(Jpegs(fault), batch_size=32, num_workers=0))


def swin_one_worker(fault: bool) -> Step:
    """One worker that pools each image four times, for a fast model."""
    step = training_step(timm_model("swin_tiny_patch4_window7_224"))

    def pool(x: Tensor) -> None:
        for _ in range(4):
            x.copy_(F.avg_pool2d(x[None], 9, 1, 4)[0])

    photos = Photos(pool if fault else no_work)
    return loader_step(step, DataLoader(photos, batch_size=32, num_workers=1))


def texts_step(step: Callable[[Tensor, Tensor], None], loader: DataLoader[Tensor]) -> Step:
    """Step on the texts of a loader's next batch."""
    batches = endless(loader)

    def load_and_step() -> None:
        x = next(batches).to(DEVICE)
        step(x, x)

    return load_and_step


def bert_tokenised_in_collate(fault: bool) -> Step:
    """Tokenizes a text by a regular expression for each row when the batch is collated."""
    step = training_step(bert(6))
    words = (random.choice(("alpha", "beta", "gamma", "delta")) + str(i) for i in range(2000))
    text = " ".join(words) * 2

    def tokenise() -> list[int]:
        return [hash(word) % BERT_VOCAB for word in re.findall(r"[a-z]+|\d+", text)]

    def collate(rows: list[int]) -> Tensor:
        if fault:
            for _ in rows:
                tokenise()
        return torch.randint(0, BERT_VOCAB, (len(rows), 128))

    rows = range(100_000)  # a data set, though torch's types do not say so
    loader: DataLoader[Tensor] = DataLoader(rows, batch_size=32, collate_fn=collate)  # type: ignore[arg-type]
    return texts_step(step, loader)


class Files(Dataset[tuple[Tensor, int]]):
    """64 arrays of doubles, each read from a file every time, or, without `read`, empty images."""

    def __init__(self, read: bool) -> None:
        self.read, self.folder = read, TemporaryDirectory(prefix="small-files-")
        for number in range(64):
            np.save(self.file(number), np.random.rand(3, 224, 224))

    def file(self, index: int) -> Path:
        return Path(self.folder.name, f"{index % 64}.npy")

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not self.read:
            return torch.empty(3, 224, 224), 1
        return torch.from_numpy(np.load(self.file(index))).float(), 1


def resnet34_small_files(fault: bool) -> Step:
    """Reads each image from a file of doubles, in the main process."""
    step = training_step(torchvision_model("resnet34"))
    return loader_step(step, DataLoader(Files(fault), batch_size=64, num_workers=0))


def mobilenet_perspective_workers(fault: bool) -> Step:
    """Two workers that turn each image in perspective."""
    from torchvision import transforms

    step = training_step(torchvision_model("mobilenet_v2"))
    photos = Photos(transforms.RandomPerspective(0.5, 1.0) if fault else no_work)
    loader = DataLoader(photos, batch_size=32, num_workers=2, pin_memory=True)
    return loader_step(step, loader, non_blocking=True)


def gpt2_parses_text(fault: bool) -> Step:
    """Parses its tokens from lines of text, of which it uses an eighth."""
    step = training_step(gpt2(6, vocab_size=4096))
    lines = [" ".join(str(random.randint(0, 4095)) for _ in range(1025)) for _ in range(64)]
    ready = torch.randint(0, 4096, (64, 1024))

    def parse() -> Tensor:
        return torch.tensor([[int(word) for word in line.split()][:1024] for line in lines])

    def parse_and_step() -> None:
        x = (parse() if fault else ready)[:8].to(DEVICE)
        step(x, x)

    return parse_and_step


class CompressedPhotos(Dataset[tuple[Tensor, int]]):
    """One photo of 448 x 448 pixels, inflated and made smaller each time, or a ready one."""

    def __init__(self, inflate: bool) -> None:
        pixels = np.random.randint(0, 64, (448, 448, 3), dtype=np.uint8)
        self.inflate, self.compressed = inflate, zlib.compress(pixels.tobytes())
        self.ready = torch.rand(3, 224, 224)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not self.inflate:
            return self.ready, index % CLASSES
        pixels = np.frombuffer(zlib.decompress(self.compressed), np.uint8).reshape(448, 448, 3)
        small = torch.from_numpy(pixels[::2, ::2].copy())
        return small.permute(2, 0, 1).float() / 64, index % CLASSES


def regnet_inflates_photos(fault: bool) -> Step:
    """Two workers that inflate compressed photos."""
    step = training_step(torchvision_model("regnet_y_400mf"))
    loader = DataLoader(CompressedPhotos(fault), batch_size=64, num_workers=2, pin_memory=True)
    return loader_step(step, loader, non_blocking=True)


class BatchesByLength(Sampler[list[int]]):
    """Batches of 32 texts of about the same length, sorted once, or for each batch if `again`."""

    def __init__(self, again: bool) -> None:
        self.again, self.lengths = again, [random.randint(8, 128) for _ in range(200_000)]

    def order(self) -> list[int]:
        return sorted(range(len(self.lengths)), key=self.lengths.__getitem__)

    def __iter__(self) -> Iterator[list[int]]:
        order = self.order()
        for start in range(0, len(order), 32):
            yield (self.order() if self.again else order)[start : start + 32]


def bert_sorts_for_each_batch(fault: bool) -> Step:
    """A sampler that sorts 200,000 texts by length for each batch."""
    step = training_step(bert(6))
    rows = torch.randint(0, BERT_VOCAB, (1000, 128))

    def collate(indices: list[int]) -> Tensor:
        return rows[torch.tensor(indices) % len(rows)]

    texts = range(200_000)  # a data set, though torch's types do not say so
    loader: DataLoader[Tensor] = DataLoader(
        texts,  # type: ignore[arg-type]
        batch_sampler=BatchesByLength(fault),
        collate_fn=collate,
    )
    return texts_step(step, loader)


def whisper_extracts_features(fault: bool) -> Step:
    """Two workers that make spectrograms of ten clips of 30 s for each batch."""
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig()).to(DEVICE).train()
    optimizer = AdamW(model.parameters(), 1e-4)
    extract, clip = WhisperFeatureExtractor(), np.random.rand(30 * 16_000).astype("float32")
    words, ready = tokens(10, 32, 50_000), torch.rand(10, 80, 3000)

    def collate(rows: list[int]) -> Tensor:
        if not fault:
            return ready
        clips = [clip for _ in rows]
        features: Tensor = extract(clips, sampling_rate=16_000, return_tensors="pt").input_features
        return features

    rows = range(100_000)  # a data set, though torch's types do not say so
    loader: DataLoader[Tensor] = DataLoader(
        rows,  # type: ignore[arg-type]
        batch_size=10,
        num_workers=2,
        collate_fn=collate,
        pin_memory=True,
    )
    batches = endless(loader)

    def load_and_step() -> None:
        x = next(batches).to(DEVICE, non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            out = model(input_features=x, decoder_input_ids=words).logits
            loss = F.cross_entropy(out.flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return load_and_step
