"""Texts, tokenizers and batches. What was prepared lies in data/NAME/, which git ignores."""
