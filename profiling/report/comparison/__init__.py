"""Comparisons and experiments: tables, charts, words."""
