"""Whom a report is about: process, GPU, steps and phases."""
