"""What `bench` measured, as a table and a picture."""
