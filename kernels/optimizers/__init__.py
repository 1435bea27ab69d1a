"""Kernels of the optimizers' updates, and of the mean of gradients that ranks share."""
