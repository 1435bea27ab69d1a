"""What kernels did: families, sums, rooflines, hardware counters."""
