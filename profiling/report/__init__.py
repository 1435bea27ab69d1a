"""Records in, text and pages out: the only code that formats."""
