"""Analysis of a memory snapshot: what lay on the GPU at the peak, and which lines put it there."""
