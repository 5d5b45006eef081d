"""Limits of rates, means, gaps and distances between distributions."""
