"""Slices: conjunctions of conditions on columns, and in which of them a model is worst."""
