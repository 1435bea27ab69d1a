"""Programs of users: any command, with the hook of profiling/attach in its Python processes."""
