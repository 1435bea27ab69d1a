"""Tokens of a trained model."""
