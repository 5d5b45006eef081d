"""Random runs of the commands, each with an oracle."""
