"""Groups seen through noise: descriptions, bounds, audits, and the programs of a repair."""
