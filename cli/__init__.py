"""The base of all command lines: keys, flags, mistakes reported in one line, whole files."""
