"""Imports of `log` and `compare --wandb`, for a server of tests.helpers.forked."""

import os

from wandb.sdk.data_types._private import MEDIA_TMP

import profiling.verbs.compare  # noqa: F401
import profiling.verbs.log  # noqa: F401
import training.metrics.tracker  # noqa: F401

# W&B makes this folder when it is imported, and each process removes it at its end.
os.register_at_fork(after_in_child=lambda: os.makedirs(MEDIA_TMP.name, exist_ok=True))
