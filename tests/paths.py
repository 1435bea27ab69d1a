"""Paths of the places that tests read, from the root of the project on."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
CAPTURES = PROJECT / "tests" / "captures"
FAKES = PROJECT / "tests" / "fakes"
GOLDENS = PROJECT / "tests" / "goldens"
