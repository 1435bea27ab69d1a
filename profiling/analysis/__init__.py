"""Trace in, plain records out: what took the time, what holds it back, what a change bought."""
