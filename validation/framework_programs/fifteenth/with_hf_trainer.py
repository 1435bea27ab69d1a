"""A program of the Trainer of transformers: texts that lie in a file, a line each."""

import itertools
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.thirteenth.with_hf_trainer import VOCAB, llama, train
from validation.framework_programs.torch_parts import Made


def hf_counts_lines_to_each_text(fault: bool, mark: Mark) -> None:
    """Two workers read a file up to the line of each text; without the fault they know its place.

    Half of the 6,000 lines, 3.7 MB, lie before the one that is wanted.
    """
    texts, words = size(6_000, 20), size(256, 8)
    with TemporaryDirectory(prefix="texts-") as folder:
        file = Path(folder, "words.txt")
        places = []
        with open(file, "wb") as made:
            for _ in range(texts):
                places.append(made.tell())
                drawn = random.choices(range(VOCAB), k=words)
                made.write(" ".join(map(str, drawn)).encode() + b"\n")

        def read(index: int) -> Tensor:
            number = index % texts
            with open(file, "rb") as lines:
                if fault:
                    line = next(itertools.islice(lines, number, None))
                else:
                    lines.seek(places[number])
                    line = lines.readline()
            return torch.tensor([int(word) for word in line.split()])

        model = llama(size(256, 64), size(2, 1))
        train(model, Made(read), mark, size(32, 2), dataloader_num_workers=size(2, 1))
