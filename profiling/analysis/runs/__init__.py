"""Run folders read back."""
