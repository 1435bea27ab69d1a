"""Decisions of this machine: what each key left at auto comes to."""
