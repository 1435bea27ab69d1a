"""Renderers of a Document: a module each for terminal, Markdown and page."""
