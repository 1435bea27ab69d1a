"""Analyse kernels: families, sums, rooflines, hardware counters."""
