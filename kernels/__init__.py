"""Kernels of this project, where the libraries and inductor stop short. model.py calls them."""
