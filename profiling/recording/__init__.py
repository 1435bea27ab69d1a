"""Measurements inside the training process, while it runs."""
