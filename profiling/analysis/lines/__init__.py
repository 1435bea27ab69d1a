"""Lines of the program's own code that made the kernels."""
