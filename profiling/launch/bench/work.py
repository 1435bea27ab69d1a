"""Whether both do the same work: what each says of it. Called by launch.bench.processes."""

from pathlib import Path

import msgspec

from cli.keys import spell
from profiling.analysis.bench.records import Work
from profiling.analysis.runs.folder import read_config
from profiling.launch.bench.plan import Plan, Trial, shared

# of nanoGPT's keys those without which a step is another one
STEP_KEYS = (
    *("n_layer", "n_head", "n_embd", "block_size", "bias", "dropout"),
    *("batch_size", "gradient_accumulation_steps", "grad_clip", "compile", "device", "dtype"),
    "seed",
)


class Facts(msgspec.Struct):
    """What the keys came to."""

    device: str
    parameters: int
    flops_per_token: int
    vocab_size: int
    data: str


class Prepared(msgspec.Struct):
    """What our first run says of itself in config.yaml."""

    in_force: Facts
    dtype: str
    batch_size: int
    block_size: int
    gradient_accumulation_steps: int

    @property
    def tokens(self) -> int:
        """Of an iteration."""
        return self.batch_size * self.block_size * self.gradient_accumulation_steps


def read_prepared(run_dir: Path) -> Prepared:
    """Raises ValueError where it is no run of today's train.py."""
    try:
        return msgspec.convert(read_config(run_dir), Prepared)
    except msgspec.ValidationError as error:
        raise ValueError(f"{run_dir}/config.yaml: {error}") from error


def prepared_work(plan: Plan, run_dir: Path, theirs: dict[str, str]) -> list[Work]:
    """`run_dir`: of our first process; `theirs`: what the other one printed, by printed.FACTS."""
    assert plan.checkout is not None
    config, ours = read_config(run_dir), read_prepared(run_dir)
    asked = shared(
        plan, Trial("run", "ours", 0), {n: spell(config[n]) for n in ("device", "dtype")}
    )
    both = [name for name in asked if name in plan.checkout.train]
    lacking = [name for name in STEP_KEYS if name not in plan.checkout.train]
    facts = {
        "tokens an iteration": f"{ours.tokens:,}",
        "parameters": f"{ours.in_force.parameters / 1e6:.2f}M",
        "vocabulary": str(ours.in_force.vocab_size),
    }
    return [
        Work("tokens of the text", ours.in_force.data, "the same", True),
        Work("keys with our value", str(len(both)), str(len(both)), True),
        *(Work(name, spell(config[name]), None, None) for name in lacking),
        *(compared(what, value, theirs.get(what)) for what, value in facts.items()),
    ]


def compared(what: str, ours: str, theirs: str | None) -> Work:
    return Work(what, ours, theirs, None if theirs is None else ours == theirs)
