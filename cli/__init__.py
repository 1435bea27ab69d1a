"""The ground floor of all command lines: keys, flags, mistakes told in one line, whole files."""
