"""All colours of the pages, by name and theme; a chart names them as var(--NAME).

Those of a step's parts are in profiling.shared.causes, with the parts. Each colour has the same hue
in both themes and is lighter in the dark one. Colours of one row or chart differ by at least 11 in
CIEDE2000, also with a colour deficiency, and those of a timeline's different rows by at least 7;
there idle time is hatched besides, in the legend as well. Shapes have a contrast of 3 to 1 with the
background. tests/report/test_palette.py measures it (Machado's simulation, CIEDE2000, WCAG 2).
"""

from collections.abc import Sequence
from itertools import chain, cycle
from typing import Literal

from configs.backends import BACKENDS
from profiling.shared import causes

Theme = Literal["light", "dark"]

INKS = {  # text and surfaces of a page: (light, dark)
    "page": ("#f4f6f8", "#0e1216"),
    "card": ("#ffffff", "#171c22"),
    "text": ("#1a1f26", "#e4e8ed"),
    "muted": ("#5c6773", "#98a4b1"),
    "line": ("#dde2e8", "#2b333d"),
    "accent": ("#1d5fd1", "#6ea8fe"),
    "warning": ("#9a5b00", "#f5c469"),
    "warning-back": ("#fff4dd", "#33270f"),
    "good": ("#18794e", "#5ee7ae"),
    "bad": ("#c61a1f", "#ff6369"),
}
FAMILIES = {  # kernel families, without communication and copy, which are parts of a step too
    "gemm": ("#5a85fc", "#6690ff"),
    "attention": ("#8a4601", "#e18032"),
    "softmax": ("#8f8e8c", "#fefdfa"),
    "norm": ("#3e7c55", "#53a371"),
    "elementwise": ("#5d2704", "#a15021"),
    "dropout": ("#1a5a3c", "#81cba2"),
    "optimizer": ("#9b7c26", "#efc44f"),
    "reduction": ("#0f141e", "#68696a"),
    "embedding": ("#7986ae", "#b9cafd"),
    "indexing": ("#1f1100", "#796853"),
    "loss": ("#5c9f6d", "#b2fec3"),
    "convolution": ("#464d5f", "#92a1ca"),
    "signal": ("#2502b2", "#444bfe"),
    "routing": ("#1c2d4d", "#747e91"),
    "other": ("#7e6b80", "#d9cbda"),
}
MARKS = {  # rows of the host, ranges on the GPU, and waits: of the host for the GPU, of a rank
    "host": ("#7a7a7a", "#d2dac7"),
    "call": ("#4f4f4f", "#aeb4cb"),
    "step": ("#77567c", "#a792aa"),
    "wait": ("#6a5f33", "#d6c585"),
}
SERIES = ("gemm", "attention", "norm", "optimizer", "loss", "communication", "embedding", "signal")


def colours(theme: Theme) -> dict[str, str]:
    """The colour of each name, as '#rrggbb'."""
    which = 0 if theme == "light" else 1
    own = {name: both[which] for name, both in (INKS | FAMILIES | MARKS).items()}
    return own | {part.name: getattr(part.colours, theme) for part in causes.PART.values()}


def configuration_colours(backends: Sequence[object]) -> list[str]:
    """Name of the colour of each configuration, the same on every page that compares them.

    If the configurations differ in their attention backends (`backends`; None: not known), each
    backend's first one has the colour of its row in configs.backends. The others take those of
    SERIES in turn.
    """
    known = {name: row.colour for name, row in BACKENDS.items() if name in backends}
    if len(set(backends)) < 2:
        known = {}
    unused = [name for name in SERIES if name not in known.values()]
    others = chain(unused, cycle(SERIES))
    return [known.pop(str(backend), "") or next(others) for backend in backends]
