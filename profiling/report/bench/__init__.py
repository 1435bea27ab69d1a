"""The results of `bench`, as tables and charts."""
