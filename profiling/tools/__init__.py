"""The tools beside PyTorch: where nsys, ncu and the compiler are, and what they write."""
