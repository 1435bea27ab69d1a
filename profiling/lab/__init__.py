"""Experiments that answer one question each, with the command that repeats them."""
