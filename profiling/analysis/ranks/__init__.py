"""Comparison of several ranks of one training: who is waited for, and why."""
