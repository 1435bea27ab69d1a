"""Does what each training would do again, for a server of tests.helpers.forked: a third of the CPU
time of a tiny one.

Hydra finds its plugins, ANTLR learns the grammar of overrides, and Hydra composes the defaults.
malloc keeps freed memory, where each product's buffer was a mapping of its own, made anew.
"""

import ctypes
import sys

from cli.malloc import MMAP_MAX, TRIM_THRESHOLD
from configs.compose import compose_jobs

WORDS = "device=cpu compile=false dropout=0.0 learning_rate=1e-2 data_source=a/b.txt out_dir=out"

compose_jobs(None, WORDS.split(), multirun=False)
mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
if mallopt is not None:
    mallopt(TRIM_THRESHOLD, -1)
    mallopt(MMAP_MAX, 0)
