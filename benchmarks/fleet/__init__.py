"""Simulated trainings on many ranks, written to files as profilers would write them."""
