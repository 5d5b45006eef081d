"""Exact solvers and iterations on plain arrays; no word here about what they are used for."""
