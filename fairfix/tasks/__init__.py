"""Tasks: each command as a function of the library."""
