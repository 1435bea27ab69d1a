"""Texts, tokenizers and batches. Prepared texts lie in data/NAME/, which git ignores."""
