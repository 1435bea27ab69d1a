"""All colours of the pages, by name and theme; a chart names them as var(--NAME).

Those of a step's parts are in profiling.shared.causes, with the parts. Readers with a colour
deficiency can tell the colours of one chart apart, too, and shapes have a contrast of 3 to 1 with
the background: tests/report/test_palette.py measures it (Machado's simulation, CIEDE2000, WCAG 2).
"""

from typing import Literal

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
    "gemm": ("#7687ff", "#65b4f5"),
    "attention": ("#b95202", "#ff852b"),
    "softmax": ("#a687b8", "#be03ab"),
    "norm": ("#079c67", "#71f2c9"),
    "elementwise": ("#225754", "#3e8c54"),
    "dropout": ("#4e4200", "#ecfb0e"),
    "optimizer": ("#4e17c8", "#875c7a"),
    "reduction": ("#1e0f00", "#8a7d7e"),
    "embedding": ("#819290", "#a5bfd0"),
    "indexing": ("#7451e0", "#8190a7"),
    "loss": ("#de7801", "#f6cf87"),
    "convolution": ("#010046", "#ecf2ff"),
    "signal": ("#691a6a", "#fa0e46"),
    "routing": ("#383e2c", "#5a7202"),
    "other": ("#5d7367", "#baa482"),
}
MARKS = {  # rows of the host, and ranges on the GPU
    "host": ("#848b98", "#94a1b1"),
    "call": ("#4a7db0", "#6a7d93"),
    "step": ("#5b6773", "#798592"),
}
SERIES = ("gemm", "attention", "norm", "optimizer", "loss", "communication", "embedding", "signal")


def colours(theme: Theme) -> dict[str, str]:
    """The colour of each name, as '#rrggbb'."""
    which = 0 if theme == "light" else 1
    own = {name: both[which] for name, both in (INKS | FAMILIES | MARKS).items()}
    return own | {part.name: getattr(part.colours, theme) for part in causes.PART.values()}
