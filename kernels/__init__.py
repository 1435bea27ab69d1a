"""Kernels of this project, for what the libraries and inductor do not do. Models call them."""
