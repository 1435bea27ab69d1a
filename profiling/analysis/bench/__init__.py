"""Analyse what `bench` measured: this project beside another checkout of nanoGPT."""
