"""Arrays: their types, and what several solvers do to rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CUT = 1e-9
"""Directions whose singular value is below this share of the greatest depend on the others."""


def shares_of(weight: Floats | None, rows: int) -> Floats:
    """Return weights of sum 1, shape (n,), from weights that are not negative; None for 1 each."""
    w = np.ones(rows) if weight is None else np.asarray(weight, dtype=float)
    total = float(w.sum())
    if w.shape != (rows,) or not np.isfinite(total) or total <= 0 or w.min() < 0:
        raise ValueError(f"weights must be {rows} numbers, none negative, that do not sum to 0")
    return w / total


def positive_weights(weight: npt.ArrayLike | None, shape: tuple[int, ...]) -> Floats:
    """Return positive finite weights of a shape; None for 1 each."""
    w = np.ones(shape) if weight is None else np.asarray(weight, dtype=np.float64)
    if w.shape != shape:
        raise ValueError(f"there must be one weight per point, got shapes {w.shape} and {shape}")
    if not (w.min() > 0 and np.isfinite(w.max())):
        raise ValueError("weights must be positive and finite: leave out points of weight 0")
    return w


def finite_scores(scores: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return finite scores of a shape."""
    f = np.asarray(scores, dtype=np.float64)
    if f.shape != shape:
        raise ValueError(f"there must be one score per point, got shapes {f.shape} and {shape}")
    if not np.isfinite(f).all():
        raise ValueError("scores must be finite: drop or fill missing and infinite ones first")
    return f


def run_starts(array: npt.NDArray[np.generic]) -> Ints:
    """Return the first index of each run of equal neighbours, shape (G,)."""
    return np.flatnonzero(np.concatenate([[True], array[1:] != array[:-1]]))


def joint_kinds(parts: Iterable[Floats | Ints], rows: int) -> Ints:
    """Return the kind of each row, shape (n,): rows of one kind are equal in all parts, shape (n, ...) each."""
    kind = np.zeros(rows, dtype=np.int64)
    for part in parts:
        kind = distinct_rows(np.stack([kind, distinct_rows(part)[1]], axis=1))[1]
    return kind


def locked(array: Floats) -> Floats:
    """Return the array after making it read-only."""
    array.flags.writeable = False
    return array


def distinct_rows(array: Floats | Ints) -> tuple[Ints, Ints]:
    """Return the first of every kind of equal rows, shape (G,), and the kind of each row, shape (n,).

    Kinds are in the order of their values. Columns of few values each are coded one after the other, which takes a
    tenth of the time of sorting whole rows.
    """
    code, many = np.zeros(len(array), dtype=np.int64), 1
    for column in array.T:
        kinds = np.unique(column)
        code = code * kinds.size + np.searchsorted(kinds, column)
        many *= kinds.size
        if many > 2**31:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
            many = int(code.max()) + 1
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    return first, code.reshape(-1)
