"""All runs and captures under a folder on one page, and what its server shows of them."""
