"""A program of the Trainer of transformers: how busy the GPU is, after each step."""

import subprocess

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.thirteenth.with_hf_trainer import fixed_words, llama, train

ASKED = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv"]


def hf_asks_nvidia_smi(fault: bool, mark: Mark) -> None:
    """A callback asks nvidia-smi after each step how busy the GPU is; without it nobody does."""

    def ask() -> None:
        subprocess.run(size(ASKED, ["true"]), check=True, capture_output=True)
        mark()

    model = llama(size(512, 64), size(2, 1))
    train(model, fixed_words(size(128, 8)), ask if fault else mark, size(8, 2))
