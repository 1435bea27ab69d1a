"""The keys of sample.py, and the text of its --help above them."""

from dataclasses import dataclass, field

from cli.keys import check_values, key
from configs.attention import CHOICES
from configs.capture import AUTO, ProfileConfig
from configs.model import GPT2_SIZES
from configs.training import WEIGHTS_HELP, TrainingConfig, check_weights

HELP = """\
Writes text with a trained GPT, as it comes. Log lines go to stderr, stdout has the text alone.

usage: python sample.py [KEY=VALUE ...]        also --KEY=VALUE

examples
  python sample.py                                              ten samples of the main experiment
  python sample.py start="ROMEO:" num_samples=1                 one that goes on from ROMEO:
  python sample.py start="To be,\\nor not" temperature=0         always the likeliest token
  python sample.py start=FILE:prompt.txt max_new_tokens=2000    a prompt from a file
  python sample.py out_dir=out-mine top_k=null > text.txt       of another run, into a file
  python sample.py num_samples=64 batch_size=64                 all of them at once
  python sample.py init_from=gpt2 start="What is the answer?"   GPT-2's weights, not a run's
  python sample.py profile=torch num_samples=3                  capture 20 tokens of the third

captures of sampling, whose step is a token
  python -m profiling run sample.py num_samples=3               the same 20 tokens under nsys
  python -m profiling report out-shakespeare-char/sample        what took their time
"""
PROGRAM = "sample.py"
FOLDER = "sample"  # folder in out_dir for these captures, apart from those of training


@dataclass
class SampleProfileConfig:
    """Section `profile`: one window, of tokens. `profile=torch` sets its kind."""

    kind: str = key(
        "none",
        "profile=KIND sets it: nsys (cudaProfilerStart and Stop around the window), "
        "torch (torch.profiler), memory (CUDA memory snapshot)",
        ("none", "nsys", "torch", "memory"),
    )
    start: str = key(
        AUTO,
        "first token of the window, counted from 0 over all samples; auto: that of the last "
        "sample, by when all is warm (on CUDA: from the third sample on)",
    )
    steps: int = key(
        20,
        "tokens in the window; a step of the capture is a token, or one of each text of a batch",
        least=1,
    )
    shapes: bool = key(False, "torch: record the operators' shapes")
    stack: bool = key(False, "torch: record Python stacks")
    memory: bool = key(False, "torch: record allocations")


@dataclass
class SampleConfig:
    """Keys of sampling, without a section, under nanoGPT's names."""

    out_dir: str = key("out-shakespeare-char", "folder of the run, with its ckpt.pt")
    init_from: str = key(
        "resume",
        "resume: out_dir/ckpt.pt; gpt2 and the like: its weights, from Hugging Face's cache or "
        "`weights`; weights: those of `weights`, of any shape",
        ("resume", *GPT2_SIZES, "weights"),
    )
    weights: str | None = key(None, WEIGHTS_HELP)
    start: str = key(
        "\\n", "the prompt, where \\n means a new line; FILE:PATH: a UTF-8 text file, as it is"
    )
    num_samples: int = key(10, "texts to write, one after the other", least=1)
    batch_size: int = key(
        1,
        "texts to draw at once: more tokens a second. A text is the same by itself, but where "
        "rounding decides",
        least=1,
    )
    max_new_tokens: int = key(500, "tokens to add to the prompt", least=0)
    temperature: float = key(
        0.8, "1: as the model says; lower: safer; 0: always the likeliest token", least=0
    )
    top_k: int | None = key(200, "draw among this many likeliest tokens; null: among all", least=1)
    seed: int = key(1337, "of the first sample; the next one's is one higher", least=0, below=2**32)
    device: str = key("auto", "auto, cpu, cuda, cuda:N or mps")
    dtype: str = key(
        "auto",
        "of weights and activations; auto: bfloat16 where the GPU has it",
        ("auto", "float32", "bfloat16", "float16"),
    )
    attention: str | None = key(
        None, "null: as in training, or auto where that does not run or is compiled first", CHOICES
    )
    compile: bool | None = key(
        None, "nanoGPT's key, without effect: nothing is compiled, on CUDA tokens are a CUDA graph"
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
                "lower it, or draw more"
            )
        return profile
