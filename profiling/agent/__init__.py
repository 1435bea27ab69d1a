"""Answers for programs that ask: records in, short texts out that name where each row is found."""
