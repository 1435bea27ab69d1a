"""The parts of `python -m benchmarks reliability`, a module each: trials(count, seed, limit_s)."""
