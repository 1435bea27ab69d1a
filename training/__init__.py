"""Modules that the training loop leans on; train.py is the loop itself."""
