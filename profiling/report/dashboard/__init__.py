"""Many runs on one page: its parts, and the server that keeps it up to date."""
