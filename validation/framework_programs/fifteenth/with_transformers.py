"""A program of transformers in a loop of its own: answers that share a question."""

import torch
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.thirteenth.with_transformers import llama
from validation.framework_programs.torch_parts import DEVICE


def lm_reads_question_for_each_answer(fault: bool, mark: Mark) -> None:
    """Scores eight answers behind a question each; without the fault it is read once, and kept.

    Seven of eight readings of 2,048 words give what the first gave.
    """
    vocab, answers = size(8192, 128), size(8, 2)
    model = llama(size(2048, 64), size(4, 1), vocab).to(torch.bfloat16).eval()
    question = torch.randint(0, vocab, (1, size(2048, 8)), device=DEVICE)
    answer = torch.randint(0, vocab, (answers, size(16, 4)), device=DEVICE)
    last = answer.shape[1]

    def score() -> Tensor:
        if fault:
            words = torch.cat([question.expand(answers, -1), answer], 1)
            seen = model(input_ids=words, use_cache=False, logits_to_keep=last).logits
        else:
            kept = model(input_ids=question, use_cache=True, logits_to_keep=1).past_key_values
            kept.batch_repeat_interleave(answers)
            seen = model(input_ids=answer, past_key_values=kept).logits
        chances: Tensor = seen[:, :-1].float().log_softmax(-1)
        return chances.gather(-1, answer[:, 1:, None]).sum((1, 2))

    with torch.no_grad():
        repeat(score, mark)
