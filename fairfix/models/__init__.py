"""Whatever scores or decides a row."""
