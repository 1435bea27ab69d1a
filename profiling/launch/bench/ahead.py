"""Estimate of how long a series will take, and a shorter one if that is long. Called by bench."""

import shlex
from collections.abc import Sequence

from profiling.launch.bench.plan import Plan, Trial, compose, our_words
from profiling.launch.duration import Process, duration_line, offer_line
from profiling.launch.experiment.captures import CAPTURED_STEPS, FREE_STEPS
from profiling.launch.experiment.plan import WARM_UP
from profiling.launch.pace import Pace, find_pace
from profiling.launch.process import process_beside

SHORT = "--iterations 200 --steps 100"
SHORTEST = "--rounds 1 --iterations 70 --steps 20"
FORWARD = 1 / 3  # forward's share of a step's arithmetic
EXACT_TOKENS = 125_000  # in an exact evaluation on tiny Shakespeare, both splits


def find_our_pace(plan: Plan) -> Pace:
    """Find the pace of our training; the other checkout is assumed to be as fast. Raises
    ValueError."""
    with process_beside() as beside:
        return beside.submit(find_pace, our_words(plan, Trial("steps", "ours", 0))).result()


def duration_lines(plan: Plan, left: Sequence[Trial], pace: Pace) -> list[str]:
    """Lines saying how long the trials take, and offering a shorter series if that is long."""
    captured = {trial for trial in left if trial.kind == "captured"}
    ahead = [Process(pace, iterations(plan, trial, pace), trial in captured) for trial in left]
    alike = f"; {plan.checkout.name} is assumed to be as fast" if plan.checkout else ""
    against = f" --against {shlex.quote(plan.asked.against)}" if plan.asked.against else ""
    offer = offer_line(ahead, f"bench {{file}}{against} {SHORT}", SHORTEST)
    return [f"{duration_line(ahead, {'ours': pace})}{alike}", *([offer] if offer else [])]


def iterations(plan: Plan, trial: Trial, pace: Pace) -> float:
    """Work of the trial, expressed in iterations of training."""
    if trial.kind in ("sample", "samples"):
        texts = plan.asked.samples if trial.kind == "samples" else 1
        # nanoGPT reads the whole context for each token, ours one token of each text
        per_token = 1 / pace.sequences if trial.side == "theirs" else 1 / pace.tokens
        return FORWARD * plan.asked.tokens * texts * per_token
    if trial.kind == "captured" and trial.side == "ours":
        return WARM_UP + CAPTURED_STEPS + FREE_STEPS
    config = compose(our_words(plan, trial))
    evaluations = -(-config.max_iters // config.eval_interval) + 1
    sequences = 2 * config.eval_iters * config.batch_size
    tokens = sequences * config.block_size or EXACT_TOKENS
    return config.max_iters + FORWARD * evaluations * tokens / pace.tokens
