"""Groups, tables and identities of rows that scikit-learn hands over, and the errors that it expects of bad ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from fairfix.data.counts import Floats, Ints
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.row_hash import identity_of
from fairfix.data.table import Table, assemble
from fairfix.errors import DataError, UsageError

LABEL, WEIGHT = "y", "sample_weight"
"""Columns of the table, named as scikit-learn names what they hold, since messages name them."""


class InputError(DataError, ValueError):
    """A :class:`~fairfix.errors.DataError` that is also what scikit-learn expects of bad input."""


class SettingError(UsageError, ValueError):
    """A :class:`~fairfix.errors.UsageError` that is also what scikit-learn expects of a bad parameter."""


@dataclass(frozen=True)
class GroupLabels:
    """Group labels of rows by column, as text, None where missing; ``named``: under names that the data have."""

    names: tuple[str, ...]
    columns: tuple[npt.NDArray[np.object_], ...]
    named: bool

    def __len__(self) -> int:
        return self.columns[0].size if self.columns else 0

    @property
    def texts(self) -> dict[str, pa.Array]:
        """The labels by column."""
        return {name: pa.array(one, pa.string()) for name, one in zip(self.names, self.columns, strict=True)}


@contextmanager
def value_errors() -> Iterator[None]:
    """Turn what fairfix says no with into errors that are ValueErrors too."""
    try:
        yield
    except (DataError, UsageError) as error:
        if isinstance(error, ValueError):
            raise
        kind = InputError if isinstance(error, DataError) else SettingError
        raise kind(str(error)) from error


def fitted(estimator: Any, X: Any, y: npt.NDArray[Any], rows: Ints, params: Mapping[str, Any]) -> Any:
    """Return a clone fitted to the given rows; parameters with a value per row are cut alike."""
    return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **_check_method_params(X, params, rows))


def weights_of(sample_weight: Any, rows: int) -> Floats | None:
    """Return weights as an array, shape (n,), checked against the number of rows."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (rows,):
        raise InputError(f"sample_weight has the shape {weight.shape}, but X has {rows:,} rows")
    return weight


def positions_of(X: Any, protected: Any) -> list[int]:
    """Return the positions of the protected columns in ``X``."""
    wanted = [protected] if isinstance(protected, str | Integral) else list(protected)
    if not wanted:
        raise SettingError("protected names no column; name one, or a function of X")
    names = list(getattr(X, "columns", []))
    width = len(names) or np.shape(X)[1]
    positions = []
    for one in wanted:
        if isinstance(one, str) and one in names:
            positions.append(names.index(one))
        elif isinstance(one, Integral) and -width <= int(one) < width:
            positions.append(int(one) % width)
        else:
            has = f"columns {', '.join(map(str, names))}" if names else f"{width} columns without names"
            raise InputError(f"protected names the column {one!r}, but X has {has}")
    return positions


def columns_at(X: Any, at: list[int]) -> Any:
    """Return some columns of ``X``, by position."""
    return _safe_indexing(np.asarray(X) if isinstance(X, list | tuple) else X, at, axis=1)


def group_labels(groups: Any) -> GroupLabels:
    """Return group labels of shape (n,) or (n, m) as text.

    Whole numbers have one text in every type (1, 1.0), so an integer column that became a float one, since
    values are missing in a batch, still names the same groups.
    """
    named = isinstance(groups, pd.DataFrame) or (isinstance(groups, pd.Series) and groups.name is not None)
    frame = pd.DataFrame(groups) if named else pd.DataFrame(np.asarray(_dense(groups), dtype=object))
    columns = []
    for i in range(frame.shape[1]):
        code, levels = pd.factorize(frame.iloc[:, i])
        texts = [identity_of((_plain(level),)).decode("utf-8", "replace") for level in levels]
        columns.append(np.array([*texts, None], dtype=object)[code])  # a missing value has the code -1
    names = tuple(map(str, frame.columns))
    if not named:
        names = ("protected",) if len(columns) == 1 else tuple(f"protected_{i}" for i in range(len(columns)))
    return GroupLabels(names, tuple(columns), named)


def _dense(matrix: Any) -> Any:
    """Return a sparse matrix as an array; anything else as it is."""
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def _plain(value: Any) -> Any:
    """Return a numpy scalar as the Python value it holds; any other value as it is."""
    return value.item() if isinstance(value, np.generic) else value


def table_of(
    groups: GroupLabels,
    score: Floats,
    *,
    data_spec: DataSpec,
    label: npt.NDArray[Any] | None = None,
    weight: Floats | None = None,
) -> Table:
    """Return the validated table of groups and scores, with labels and weights at the fit.

    The ``data_spec`` says what the scores are, and under which name they stand.
    """
    beside = {str(data_spec.columns.score): score, LABEL: label, WEIGHT: weight}
    columns = groups.texts | {name: pa.array(column) for name, column in beside.items() if column is not None}
    roles = ColumnRoles(
        groups.names,
        label=None if label is None else LABEL,
        score=data_spec.columns.score,
        weight=None if weight is None else WEIGHT,
    )
    data_spec = replace(data_spec, columns=roles)
    data_spec.check()
    return assemble([pa.RecordBatch.from_pydict(columns)], data_spec)


def identities(features: Any, groups: GroupLabels, rows: Ints) -> Iterator[bytes]:
    """Yield the identity of each of the given rows: its values as the estimator sees them, then its groups."""
    if not rows.size:
        return
    cells = np.asarray(_dense(_safe_indexing(features, rows)), dtype=np.object_).reshape(rows.size, -1)
    levels = zip(*(texts[rows] for texts in groups.columns), strict=True)
    for row, gaps, group in zip(cells.tolist(), pd.isna(cells).tolist(), levels, strict=True):
        yield identity_of(
            [*(None if gap else _plain(cell) for cell, gap in zip(row, gaps, strict=True)), *group]
        )
