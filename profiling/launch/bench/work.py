"""Comparison of the work of both sides, by what each says of it. Called by bench.processes."""

from pathlib import Path

import msgspec

from cli.keys import spell
from profiling.analysis.bench.bench_records import Work
from profiling.analysis.runs.folder import read_config
from profiling.launch.bench.plan import Plan, Trial, shared_settings

# nanoGPT's keys that change a step
STEP_KEYS = (
    *("n_layer", "n_head", "n_embd", "block_size", "bias", "dropout"),
    *("batch_size", "gradient_accumulation_steps", "grad_clip", "compile", "device", "dtype"),
    "seed",
)


class Facts(msgspec.Struct):
    """Facts of our run, as `in_force` in config.yaml has them."""

    device: str
    parameters: int
    flops_per_token: int
    vocab_size: int
    data: str


class Prepared(msgspec.Struct):
    """Our first run, as its config.yaml describes it."""

    in_force: Facts
    dtype: str
    batch_size: int
    block_size: int
    gradient_accumulation_steps: int

    @property
    def tokens(self) -> int:
        """Number of tokens in an iteration."""
        return self.batch_size * self.block_size * self.gradient_accumulation_steps


def read_prepared(run_dir: Path) -> Prepared:
    """Read config.yaml of our first run. Raises ValueError if today's train.py did not write it."""
    try:
        return msgspec.convert(read_config(run_dir), Prepared)
    except msgspec.ValidationError as error:
        raise ValueError(f"{run_dir}/config.yaml: {error}") from error


def prepared_work(plan: Plan, run_dir: Path, theirs: dict[str, str]) -> list[Work]:
    """Rows comparing the work of both sides.

    `run_dir` is that of our first process; `theirs` are facts that the other one printed, by the
    keys of printed.FACTS.
    """
    assert plan.checkout is not None
    config, ours = read_config(run_dir), read_prepared(run_dir)
    asked = shared_settings(
        plan, Trial("run", "ours", 0), {n: spell(config[n]) for n in ("device", "dtype")}
    )
    both = [name for name in asked if name in plan.checkout.train]
    lacking = [name for name in STEP_KEYS if name not in plan.checkout.train]
    facts = {
        "tokens per iteration": f"{ours.tokens:,}",
        "parameters": f"{ours.in_force.parameters / 1e6:.2f}M",
        "vocabulary": str(ours.in_force.vocab_size),
    }
    return [
        Work("tokens of the text", ours.in_force.data, "the same", True),
        Work("keys with our value", str(len(both)), str(len(both)), True),
        *(Work(name, spell(config[name]), None, None) for name in lacking),
        *(compare_fact(what, value, theirs.get(what)) for what, value in facts.items()),
    ]


def compare_fact(what: str, ours: str, theirs: str | None) -> Work:
    return Work(what, ours, theirs, None if theirs is None else ours == theirs)
