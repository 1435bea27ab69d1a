"""A program of sentence-transformers: few questions and a large corpus."""

import torch.nn.functional as F
from sentence_transformers.util import dot_score

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import bfloats


def sentences_few_questions_control(fault: bool, mark: Mark) -> None:
    """Scores two million passages for four questions, and takes the best."""
    width = size(768, 8)
    corpus = F.normalize(bfloats(size(2_000_000, 50), width))
    questions = F.normalize(bfloats(4, width))
    repeat(lambda: dot_score(questions, corpus).amax(1), mark)
