"""First lines on files with the quirks of public ones, and first guesses: do they lead to a report."""
