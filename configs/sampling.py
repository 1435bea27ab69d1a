"""The keys of sample.py, and the text of its --help above them."""

from dataclasses import dataclass, field

from cli.keys import check_values, key
from configs.backends import CHOICES
from configs.model import GPT2_SIZES
from configs.profiling import AUTO, ProfileConfig
from configs.training import WEIGHTS_HELP, TrainingConfig, check_weights

HELP = """\
Writes text with a trained GPT, token by token. The text goes to stdout, log lines go to stderr.

usage: python sample.py [KEY=VALUE ...]        also --KEY=VALUE

examples
  python sample.py                                              ten samples of the main experiment
  python sample.py start="ROMEO:" num_samples=1                 one sample that continues ROMEO:
  python sample.py start="To be,\\nor not" temperature=0         always the likeliest token
  python sample.py start=FILE:prompt.txt max_new_tokens=2000    a prompt from a file
  python sample.py out_dir=out-mine top_k=null > text.txt       from another run, into a file
  python sample.py num_samples=64 batch_size=64                 all samples at once
  python sample.py init_from=gpt2 start="What is the answer?"   GPT-2's weights instead of a run's
  python sample.py profile=torch num_samples=3                  capture 20 tokens of the third

captures of sampling (a step is a token)
  python -m profiling run sample.py num_samples=3               the same 20 tokens under nsys
  python -m profiling report out-shakespeare-char/sample        where their time went
"""
PROGRAM = "sample.py"
FOLDER = "sample"  # folder in out_dir for these captures, apart from those of training


@dataclass
class SampleProfileConfig:
    """Section `profile`: one window, of tokens. `profile=torch` sets its kind."""

    kind: str = key(
        "none",
        "profile=KIND sets this key: nsys (cudaProfilerStart and Stop around the window), torch "
        "(torch.profiler), memory (CUDA memory snapshot)",
        ("none", "nsys", "torch", "memory"),
    )
    start: str = key(
        AUTO,
        "first token of the window, counted from 0 over all samples; auto: the first token of "
        "the last sample, when everything is warm (on CUDA: from the third sample on)",
    )
    steps: int = key(
        20,
        "tokens in the window; a step of the capture is a token, or one token of each text of a "
        "batch",
        least=1,
    )
    shapes: bool = key(False, "torch: record the operators' shapes")
    stack: bool = key(False, "torch, and nsys started by `run`: record Python stacks")
    memory: bool = key(False, "torch: record allocations")


@dataclass
class SampleConfig:
    """Keys of sampling, without a section, under nanoGPT's names."""

    out_dir: str = key("out-shakespeare-char", "folder of the run with its ckpt.pt")
    init_from: str = key(
        "resume",
        "resume: out_dir/ckpt.pt; gpt2, gpt2_medium, ...: these weights, from Hugging Face's "
        "cache or `weights`; weights: the file or folder in `weights`, of any shape",
        ("resume", *GPT2_SIZES, "weights"),
    )
    weights: str | None = key(None, WEIGHTS_HELP)
    start: str = key(
        "\\n",
        "the prompt, in which \\n means a new line; FILE:PATH: the content of a UTF-8 text file",
    )
    num_samples: int = key(10, "texts to write, one after the other", least=1)
    batch_size: int = key(
        1,
        "texts to generate at once, for more tokens per second. Each text is the same as when "
        "generated alone, except for rounding",
        least=1,
    )
    max_new_tokens: int = key(500, "tokens to add to the prompt", least=0)
    temperature: float = key(
        0.8, "1: the model's probabilities; lower: safer; 0: always the likeliest token", least=0
    )
    top_k: int | None = key(200, "sample from this many likeliest tokens; null: from all", least=1)
    seed: int = key(
        1337,
        "seed of the first sample; each next sample has a seed one higher",
        least=0,
        below=2**32,
    )
    device: str = key("auto", "auto, cpu, cuda, cuda:N or mps")
    dtype: str = key(
        "auto",
        "dtype of weights and activations; auto: bfloat16 if the GPU supports it",
        ("auto", "float32", "bfloat16", "float16"),
    )
    attention: str | None = key(
        None,
        "null: as in training, or auto if that backend does not run here or has to be "
        "compiled first",
        CHOICES,
    )
    compile: bool | None = key(
        None,
        "nanoGPT's key, has no effect: nothing is compiled; on CUDA, tokens run as a CUDA graph",
    )
    profile: SampleProfileConfig = field(default_factory=SampleProfileConfig)

    def __post_init__(self) -> None:
        check_values(self)
        check_weights(self.init_from, self.weights)
        if self.init_from == "resume" and self.weights:
            raise ValueError(f"weights={self.weights}: add init_from=gpt2, or init_from=weights")
        # keys that training has too follow its rules
        self.out_dir = TrainingConfig(out_dir=self.out_dir, device=self.device).out_dir
        self.window()

    @property
    def rows(self) -> int:
        """Number of texts that are drawn at once."""
        return min(self.batch_size, self.num_samples)

    @property
    def steps(self) -> int:
        """Number of steps of all samples together; in one each text of a batch gets a token."""
        return -(-self.num_samples // self.rows) * self.max_new_tokens

    def window(self) -> ProfileConfig:
        """The section `profile` with a number as start. Raises ValueError if it does not fit."""
        asked, start = self.profile, self.profile.start
        if start == AUTO:
            start = str(self.steps - self.max_new_tokens)
        profile = ProfileConfig(
            kind=asked.kind,
            start=start,
            steps=asked.steps,
            shapes=asked.shapes,
            stack=asked.stack,
            memory=asked.memory,
        )
        if asked.kind != "none" and int(start) + asked.steps > self.steps:
            raise ValueError(
                f"profile.steps={asked.steps}: the window would be tokens {start} to "
                f"{int(start) + asked.steps - 1}, but num_samples={self.num_samples} of "
                f"max_new_tokens={self.max_new_tokens}, {self.rows} at once, are {self.steps}; "
                "lower profile.steps, or generate more tokens"
            )
        return profile
