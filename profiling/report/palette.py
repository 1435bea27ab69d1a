"""All colours of the pages, by name and theme; a chart names them as var(--NAME).

Those of a step's parts stand in profiling.causes, with the parts. The colours that share a chart
are told apart also by who sees two primaries alone, shapes have a contrast of 3 to 1 with the
background: tests/report/test_palette.py measures it (Machado's simulation, CIEDE2000, WCAG 2).
"""

from typing import Literal

from profiling import causes

Theme = Literal["light", "dark"]

INKS = {  # what a page is written in: light, dark
    "page": ("#f4f6f8", "#0e1216"),
    "card": ("#ffffff", "#171c22"),
    "text": ("#1a1f26", "#e4e8ed"),
    "muted": ("#5c6773", "#98a4b1"),
    "line": ("#dde2e8", "#2b333d"),
    "accent": ("#1d5fd1", "#6ea8fe"),
    "warning": ("#9a5b00", "#f5c469"),
    "warning-back": ("#fff4dd", "#33270f"),
    "good": ("#18794e", "#4cc38a"),
    "bad": ("#c62a2f", "#ff6369"),
}
FAMILIES = {  # of kernels; communication and copy are parts of a step too
    "gemm": ("#546579", "#0b7dff"),
    "attention": ("#7857b1", "#e87911"),
    "softmax": ("#74294f", "#ef95ff"),
    "norm": ("#004f2b", "#a1a18a"),
    "elementwise": ("#047e65", "#b1e3bd"),
    "dropout": ("#739665", "#f6ffa1"),
    "optimizer": ("#9678aa", "#a682b8"),
    "reduction": ("#926207", "#9c6305"),
    "embedding": ("#0397ef", "#efffff"),
    "loss": ("#be8a09", "#ceb779"),
    "convolution": ("#01045c", "#cdcae1"),
    "pooling": ("#3c0024", "#d6235d"),
    "routing": ("#141e00", "#4ef400"),
    "other": ("#919294", "#7c7e7d"),
}
MARKS = {  # of the host, and of ranges on the GPU
    "host": ("#6c7483", "#96a3b1"),
    "call": ("#7694b6", "#69809b"),
    "step": ("#5d6874", "#7a8490"),
}
SERIES = ("gemm", "attention", "norm", "optimizer", "loss", "communication", "embedding", "pooling")


def colours(theme: Theme) -> dict[str, str]:
    """'#rrggbb' of each name."""
    which = 0 if theme == "light" else 1
    named = {name: both[which] for name, both in (INKS | FAMILIES | MARKS).items()}
    return named | {part.name: getattr(part.colours, theme) for part in causes.PART.values()}
