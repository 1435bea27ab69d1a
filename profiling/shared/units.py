"""Numbers with their units, formatted for people."""

ABSENT = "–"  # shown for a missing value
ROUNDING_MS = 1e-9  # what sums of nanoseconds differ by in floating point; times are longer


def milliseconds(value: float | None) -> str:
    """Milliseconds as text, such as 1,234, 123.4, 12.34 or 0.123: down to a microsecond."""
    if value is None:
        return ABSENT
    size = abs(value)
    if size < ROUNDING_MS:
        return "0"
    if size < 0.0005:
        return "<0.001"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{decimals}f}"


def change_ms(value: float | None) -> str:
    """Milliseconds with their sign, such as +0.877, -0.218 or -<0.001."""
    return with_sign(value, milliseconds(value))


def change_percent(value: float | None) -> str:
    return with_sign(value, percent(value))


def with_sign(value: float | None, text: str) -> str:
    """`text` of `value` with its sign in front, unless a minus is there already; 0 has none."""
    if not value or text.startswith("-"):
        return text
    return f"+{text}" if value > 0 else f"-{text}"


def spell_duration(seconds: float) -> str:
    """A duration in words, as precise as one plans: 3 s, 12 min, 5.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def duration_ns(value: float | None) -> str:
    """A duration in the unit that suits it."""
    if value is None:
        return ABSENT
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.{2 if abs(value) < 100 * size else 1}f} {unit}"
    return f"{value:.0f} ns"


def size_bytes(value: float | None) -> str:
    if value is None:
        return ABSENT
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def binary_bytes(value: float | None) -> str:
    """A size in GiB and MiB, as PyTorch writes GPU memory."""
    if value is None:
        return ABSENT
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= size:
            return f"{value / size:.{2 if unit == 'GiB' else 1}f} {unit}"
    return f"{value:.0f} B"


def change_binary(value: float | None) -> str:
    """A size with its sign."""
    return with_sign(value, binary_bytes(value))


def counted(number: int, noun: str) -> str:
    """A number of things: 1 step, 1,200 steps."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f} %"


def whole_percent(share: float) -> str:
    """A share of 1 in whole per cent: 0.65 is 65 %."""
    return f"{100 * share:.0f} %"


def precise(value: float | None) -> str:
    """A number with five significant digits, to tell small differences apart."""
    if value is None:
        return ABSENT
    size = abs(value)
    decimals = 4 if size < 10 else 3 if size < 100 else 2 if size < 1000 else 0
    return f"{value:,.{decimals}f}"


def times(value: float | None) -> str:
    """A factor: 1.42x."""
    return ABSENT if value is None else f"{value:.2f}x"


def seconds(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"


def number(value: float | None) -> str:
    """Whole numbers in full, others with three significant digits."""
    if value is None:
        return ABSENT
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
