"""Trainings on many ranks that were never run: simulated, and written as profilers write them."""
