"""The interactive page: counts of groups by label and score, and the script that computes with them in a browser."""
