"""The optimizers and their properties, in one table. Standard library only.

A new optimizer is a row here and its module in training.optimizers. The key's choices, what it goes
with, the memory that it takes and its roofline are derived from the row.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Optimizer:
    name: str  # as in optimizer=NAME
    meaning: str  # words of --help; empty if the name says it
    plain: str  # its class, a subclass of AdamW: module of training.optimizers:name
    fused: str | None  # the class with our own kernels; None: it has no form with kernels=fused
    matrix_moments: int  # numbers that it keeps of each weight in a matrix of a block
    moments: int  # and of each other weight
    elementwise: bool  # each weight by itself: a rank can update its share of a matrix
    loss_scaler: bool  # works with the loss scaler of dtype=float16

    def moments_of(self, matrices: int, others: int) -> int:
        """Numbers that it keeps of `matrices` weights in matrices of blocks, and `others`."""
        return self.matrix_moments * matrices + self.moments * others


TABLE = (
    Optimizer(
        "adamw",
        "",
        "optimizer:AdamW",
        "optimizer:ClippedAdamW",
        2,
        2,
        elementwise=True,
        loss_scaler=True,
    ),
    Optimizer(
        "muon",
        "orthogonal updates for the matrices of the blocks, AdamW for everything else",
        "muon:Muon",
        "muon:ClippedMuon",
        matrix_moments=1,
        moments=2,
        elementwise=False,
        loss_scaler=False,
    ),
)
OPTIMIZERS = {row.name: row for row in TABLE}
HELP = "; ".join(f"{row.name}: {row.meaning}" if row.meaning else row.name for row in TABLE)
