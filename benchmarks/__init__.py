"""Measurements of this project itself, each with the command that repeats it."""
