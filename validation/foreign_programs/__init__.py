"""Ordinary programs of torchvision, timm and transformers, each with a fault that can be taken out.

series.py lists them, the other modules hold them by what is planted; `python -m validation foreign`
runs them.
"""
