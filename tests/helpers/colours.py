"""Differences of colours for each kind of sight, and contrast: small colour mathematics.

Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
Deficiency" (2009), at full severity, on linear sRGB; Sharma, Wu and Dalal, "The CIEDE2000
Color-Difference Formula" (2005); contrast as WCAG 2 defines it.
"""

import numpy as np

SIGHTS = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.072175],
        [0.0193339, 0.119192, 0.9503041],
    ]
)  # from linear sRGB, white D65
LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)  # from linear sRGB
OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colour: str) -> np.ndarray:
    """Linear sRGB components, (3,), of a colour '#rrggbb'."""
    encoded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def cielab(colour: str, sight: str) -> np.ndarray:
    """CIELAB coordinates, (3,), of a colour as somebody with that sight sees it."""
    xyz = XYZ @ np.clip(SIGHTS[sight] @ linear(colour), 0, 1) / XYZ.sum(1)
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def oklch(colour: str) -> tuple[float, float, float]:
    """Lightness, chroma and hue in degrees, in Ottosson's OKLab (2020)."""
    cones = np.cbrt(LMS @ linear(colour))
    lightness, a, b = OKLAB @ cones
    return float(lightness), float(np.hypot(a, b)), float(np.degrees(np.arctan2(b, a)))


def distance(one: str, other: str, sight: str) -> float:
    return ciede2000(cielab(one, sight), cielab(other, sight))


def ciede2000(one: np.ndarray, other: np.ndarray) -> float:
    """CIEDE2000 difference of two colours in CIELAB; names as in the paper."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    dl, dc, dh = l2 - l1, c2 - c1, 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    lightness, c = (l1 + l2) / 2, (c1 + c2) / 2
    h = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    waves = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    t = 1 + sum(size * np.cos(np.radians(times * h + by)) for size, times, by in waves)
    rotation = 60 * np.exp(-(((h - 275) / 25) ** 2))
    r = -np.sin(np.radians(rotation)) * 2 * np.sqrt(c**7 / (c**7 + 25.0**7))
    sl = 1 + 0.015 * (lightness - 50) ** 2 / np.sqrt(20 + (lightness - 50) ** 2)
    sc, sh = 1 + 0.045 * c, 1 + 0.015 * c * t
    squares = (dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2
    return float(np.sqrt(squares + r * dc / sc * dh / sh))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2, from 1 to 21."""
    dark, light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)
