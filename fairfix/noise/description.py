r"""Descriptions of noise: relations of true and recorded groups by a noise table, an auxiliary file or radii.

The descriptions of noise, from the weakest to the strongest:

* **N0** radii: the rows of true group ``j`` are distributed within total variation ``gamma_j`` of those recorded as
  ``j``
* **N1** a table of ``P(true, noisy)``
* **N2** the same by label
* **N3** N1 or N2, and ``P(noisy | true, label, decision)`` differs from the table's by at most eps
* **N4** N3 with eps = 0: noise depends on nothing but the true group (and the label, if the table is by label)

The table comes from other people than the data, so its noisy groups have other shares. It is carried over in one of two
ways: by what a recorded group consists of, ``P(true | noisy)``, or by how a true group is recorded,
``P(noisy | true)``. N3 and N4 are statements about the second. Of N0, N1 and N2 either may be true, and where the user
has not said which, both are inside the worst case.

If there are more true groups than noisy ones, ``P(noisy | true)`` leaves open how large the true groups are. The tables
in which one of the groups is as small as can be then hold the worst case of every group (``docs/methods/noise.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from fairfix.data.choices import Form, Keep, Probabilities
from fairfix.data.counts import Floats
from fairfix.data.encoder import group_codes
from fairfix.data.files import Source
from fairfix.data.memberships import ROUNDED
from fairfix.data.names import attribute_name, group_name, listed, nearest, written_attribute
from fairfix.data.noise_spec import NoiseSpec, StatedAssumption
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.noise.label_shift import smallest_shares, total_variation, transport_columns, transport_rows

FORMS: tuple[Form, ...] = get_args(Probabilities)
"""Range of a probability."""

MOST_GROUPS = 1000
"""True or noisy groups, as many as data may have unasked: the table has an entry for each pair of them."""

PSEUDO_COUNT = 1.5
"""Rows that are added to a table of counts in all, before it is drawn anew: a zero is no certainty."""

DUST = 1e-6
"""Rows that a drawn table has in all besides those drawn, so that no group is without any."""

WORDS: Mapping[str, str] = {
    "count": "counts",
    "joint": "joint probabilities: all of them sum to 1",
    "true-given-noisy": "P(true | noisy): those of each noisy group sum to 1",
    "noisy-given-true": "P(noisy | true): those of each true group sum to 1",
}


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """A description of noise by a table from a file (``source``): N1, or with labels N2."""

    source: str
    true: tuple[str, ...]
    noisy: tuple[str, ...]
    entries: Floats
    """Shape (J, K), or (2, J, K) by label: counts, or probabilities of the given form."""
    form: Form
    keep: Keep | None = None
    """Part of the table that holds for the data too; None: either may."""

    def __post_init__(self) -> None:
        if self.keep is not None and not self.says_noisy and self.keep != self.form:
            raise UsageError(
                f"`noise=FILE(keep={self.keep})`: {self.source} contains {WORDS[self.form]}, which can only stay the "
                "same"
            )

    @property
    def by_label(self) -> bool:
        """Whether there is a table for each label."""
        return self.entries.ndim == 3

    @property
    def rows(self) -> int | None:
        """Rows that were counted; None if they are not known."""
        return round(float(self.entries.sum())) if self.form == "count" else None

    @property
    def says_noisy(self) -> bool:
        """Whether the table knows how large its noisy groups are."""
        return self.form in ("count", "joint")

    def for_groups(self, names: Sequence[str], column: str) -> NoiseTable:
        """Return the table with its noisy groups in the order of the data's."""
        at = self._places(names, f" of column {column!r}")
        for k, name in enumerate(self.noisy):
            if name not in names and self.entries[..., k].any():
                raise DataError(
                    f"{self.source} names the noisy group {name!r}, which column {column!r} does not have"
                    f"{_near(name, names)}; it has {listed(names)}: rename it, or leave its rows out"
                )
        return replace(self, noisy=tuple(names), entries=self.entries[..., at])

    def _places(self, names: Sequence[str], of: str = "") -> list[int]:
        """Return the numbers of noisy groups, or say which is missing."""
        for name in names:
            if name not in self.noisy:
                raise DataError(
                    f"{self.source} lacks the group {name!r}{of}{_near(name, self.noisy)}; its noisy groups "
                    f"are {', '.join(self.noisy)}: add rows with noisy = {name!r}"
                )
        return [self.noisy.index(name) for name in names]

    def shift(self, masses: Floats) -> float | None:
        """Return the total variation of noisy groups to masses (K,) or (2, K); None if the table has none."""
        if not self.says_noisy:
            return None
        return float(total_variation(self.entries.sum(-2).ravel(), masses.ravel()))

    @property
    def possible(self) -> tuple[Keep, ...]:
        """Parts of it that may hold for the data too, by the table alone."""
        if self.form in ("true-given-noisy", "noisy-given-true"):
            return (self.form,)
        return "true-given-noisy", "noisy-given-true"

    @property
    def tells_shares(self) -> bool:
        """Whether ``P(noisy | true)`` and the data's noisy groups tell how large the true groups are."""
        for table in self.entries if self.by_label else self.entries[None]:
            filled = table[table.any(-1)]
            if np.linalg.matrix_rank(filled / filled.sum(-1, keepdims=True)) < len(filled):
                return False
        return True

    def carried(self, masses: Floats, keep: Keep, entries: Floats | None = None) -> Floats:
        """Return joint masses of true and noisy groups in the data: all tables that may be, shape (W, ...).

        There is one table (W = 1), or where ``P(noisy | true)`` stays and does not tell the shares of true groups, one
        in which each of them is smallest (W = J). Masses of the data's noisy groups have shape (..., K), or by label
        (..., 2, K); other entries of the table (..., J, K) or (..., 2, J, K).

        Raises
        ------
        DataError
            The table cannot make up the data's groups, or leaves their fractions open in a way without a known worst
            case.
        """
        table = self.entries if entries is None else entries
        try:
            if keep == "true-given-noisy":
                return transport_columns(table, masses)[None]
            if self.tells_shares:
                return transport_rows(table, masses)[None]
        except ValueError as error:
            raise self._lost(masses, table) from error
        if self.by_label:
            raise DataError(
                f"{self.source}: P(noisy | true) does not give the sizes of the true groups "
                f"{', '.join(self.true)}, since "
                + (
                    "there are fewer recorded groups"
                    if len(self.true) > len(self.noisy)
                    else "some are recorded the same way"
                )
                + ". If recorded groups have the same composition in the data, write "
                "`noise=FILE(keep=true-given-noisy)`; otherwise give a table without labels"
            )
        try:
            return smallest_shares(table, masses)
        except ValueError as error:
            raise self._lost(masses, table) from error

    def _lost(self, masses: Floats, table: Floats) -> DataError:
        """Return the error of a table that cannot make up the data's groups."""
        empty = ((table.sum(-2) <= 0) & (masses > 0)).reshape(-1, len(self.noisy)).any(0)
        lost = [name for name, none in zip(self.noisy, empty, strict=True) if none]
        who = ", ".join(map(repr, lost)) if lost else "one of the groups"
        return DataError(
            f"{self.source} gives no true group for rows recorded as {who}"
            + (" with one of the labels" if self.by_label else "")
            + ", and the data have such rows: add these rows to the table"
        )

    @property
    def ways(self) -> tuple[Keep, ...]:
        """Parts that may hold for the data too: the stated one, or those that the table does not rule out."""
        return (self.keep,) if self.keep else self.possible

    @property
    def of_recording(self) -> Keep:
        """Part that holds if noise depends on the true group (N3, N4): ``P(noisy | true)``.

        Another only if the user says so, or the table knows nothing else.
        """
        return self.ways[-1]

    def tables(self, masses: Floats, entries: Floats | None = None) -> Floats:
        """Return all joint masses that it may mean for the data, shape (W, ...); see :meth:`carried`."""
        return np.concatenate([self.carried(masses, keep, entries) for keep in self.ways])

    def recording(self, masses: Floats, entries: Floats | None = None) -> Floats | None:
        """Return the joint masses that N3 is about; None where it does not tell the shares of true groups."""
        if self.of_recording == "noisy-given-true" and not self.tells_shares:
            return None
        return np.asarray(self.carried(masses, self.of_recording, entries)[0])

    def conditional(self, masses: Floats, entries: Floats | None = None) -> Floats:
        """Return a table of the ``P(noisy | true)`` that N4 is about: as it is, wherever it can be."""
        if self.of_recording == "noisy-given-true":
            return self.entries if entries is None else entries
        return np.asarray(self.carried(masses, self.of_recording, entries)[0])

    def for_data(self, names: Sequence[str], masses: Floats) -> tuple[NoiseTable, Floats]:
        """Return the table with the groups of the data, which may be fewer, and the masses in its order.

        Noisy groups of the table that the data have no rows of stay, without any.
        """
        at = self._places(names)
        others = [k for k in range(len(self.noisy)) if k not in at]
        order = at + others
        ordered = replace(self, noisy=tuple(self.noisy[k] for k in order), entries=self.entries[..., order])
        return ordered, np.concatenate([masses, np.zeros((*masses.shape[:-1], len(others)))], -1)

    def drawn(self, replicates: int, rng: np.random.Generator) -> Floats | None:
        """Return tables of other surveys of the same size, shape (R, ...); None if its size is not known."""
        rows = self.rows
        if rows is None:
            return None
        prior = self.entries + PSEUDO_COUNT / self.entries.size
        share = prior / prior.sum()
        counts = rng.multinomial(rows, share.ravel(), replicates).reshape(replicates, *share.shape)
        return np.asarray(counts + DUST * share)  # what was not drawn at all is as it was


@dataclass(frozen=True, eq=False)
class Noise:
    """A description of noise: a table (N1 or N2), radii, or both; or memberships; with what is assumed besides."""

    table: NoiseTable | None = None
    radii: Mapping[str, float] | None = None
    """N0, group -> radius; None: those that the table allows."""
    assume: str = ""
    """N3 (eps), N4 (class-conditional, or independent given memberships), or N0 alone of a table (radii)."""
    membership: Mapping[str, str] | None = None
    """True group -> column of each row's probability to be of it; nothing is said of recorded groups then."""

    def __post_init__(self) -> None:
        NoiseSpec(self.table, radii=self.radii, membership=self.membership, assume=self.assumption).check()

    @cached_property
    def assumption(self) -> StatedAssumption:
        """Text of the assumption."""
        return StatedAssumption.parse(self.assume)

    @property
    def epsilon(self) -> float | None:
        """The number of N3, where it is assumed."""
        return self.assumption.epsilon

    @property
    def class_conditional(self) -> bool:
        """Whether N4 of a table is assumed."""
        return self.assumption.word == "class-conditional"

    @property
    def independent(self) -> bool:
        """Whether N4 of membership is assumed: given the probabilities, the true group is unrelated to outcomes."""
        return self.assumption.word == "independent"


def _near(name: str, names: Sequence[str]) -> str:
    near = nearest(name, names)
    return f" (did you mean {near[0]!r}?)" if near else ""


# ---------------------------------------------------------------------- files


def noise_of(spec: NoiseSpec, opened: Callable[[Any], Source], protected: Sequence[str] = ()) -> Noise:
    """Return the noise that a specification describes, whose file is opened by a function.

    ``protected`` are the recorded columns of the data, which a file of people may have by the same names.
    """
    table = None
    if spec.file is not None:
        source, own = opened(spec.file), spec.columns
        if own:
            recorded = own.get("recorded") or attribute_name(protected)
            table = tabulate(source, own["true"], recorded, own.get("label"))
        else:
            table = read_noise(source, spec.keep)
        table = replace(table, keep=spec.keep)
    return Noise(table, spec.radii, str(spec.assume), spec.membership)


def read_noise(source: Source, keep: Keep | None = None) -> NoiseTable:
    """Return the table in a file with one row per (``true``, ``noisy``[, ``label``]).

    Which kind its probabilities are is found from which sums are 1; ``keep`` chooses where several are.
    """
    kinds = [name for name in ("count", "probability") if name in source.columns]
    if len(kinds) != 1:
        raise ColumnError(
            f"{source.name} must have a column 'count' or a column 'probability', and it has "
            f"{'both: leave one out' if kinds else 'neither'}; its columns are {', '.join(source.columns)}"
            + (
                ""
                if kinds
                else ". For a file with one row per person, name both groups: `noise=FILE(true=COLUMN,recorded=COLUMN)`"
            )
        )
    kind = kinds[0]
    by_label = "label" in source.columns
    keys = ("true", "noisy", *(("label",) if by_label else ()))
    source.require(keys)
    entries = _entries(source, keys, kind)
    table = _arranged(entries, by_label=by_label, where=source.name)
    total = float(table.entries.sum())
    if total <= 0:
        raise DataError(f"column {kind!r} of {source.name} contains only zeros; give the counts of a survey")
    if kind != "count":
        return _as_probabilities(table, keep)
    if total >= 1 << 53:
        raise DataError(
            f"column 'count' of {source.name} sums to {total:.3g} rows, more than any survey has; correct it, or "
            "call it 'probability' if these are fractions"
        )
    return table


def tabulate(source: Source, true: str, noisy: str, label: str | None = None) -> NoiseTable:
    """Return the counts of a file with one row per person, which has columns of both groups, and of the label.

    Groups may be the intersections of several columns, named as attributes are: ``race x sex``. A column without noise
    is both true and recorded.
    """
    given = (true, noisy, *((label,) if label else ()))
    parts = [_columns_of(source, true), _columns_of(source, noisy), *((one,) for one in given[2:])]
    keys = tuple(dict.fromkeys(column for own in parts for column in own))
    if set(parts[0]) == set(parts[1]) or any(len(set(own)) < len(own) or label in own for own in parts[:2]):
        raise UsageError(
            f"`noise`: {', '.join(given)} names a column twice; true and recorded group are two columns"
        )
    source.require(keys)
    places = [[keys.index(column) for column in own] for own in parts]
    entries: dict[tuple[str, ...], float] = {}
    for levels, number in _entries(source, keys).items():
        entries[tuple(group_name(levels[at] for at in own) for own in places)] = number
    return _arranged(entries, by_label=label is not None, where=source.name, column=label or "")


def _columns_of(source: Source, name: str) -> tuple[str, ...]:
    """Return the column of a name, or the columns whose cells it names."""
    return (name,) if name in source.columns else tuple((written_attribute(name) or name).split(" x "))


def _entries(source: Source, keys: Sequence[str], kind: str | None = None) -> dict[tuple[str, ...], float]:
    """Return (true, noisy[, label]) -> its number in a column, or the rows that have it."""
    out: dict[tuple[str, ...], float] = {}
    for batch in _batches(source, (*keys, *((kind,) if kind else ()))):
        coded = [group_codes(batch.column(name), name) for name in keys]
        for name, (_, _, missing) in zip(keys, coded, strict=True):
            if missing is None or not missing.any() or (kind and name == "noisy"):
                continue
            if kind is None:
                raise DataError(
                    f"column {name!r} of {source.name} has {int(missing.sum()):,} missing values or more; leave these "
                    "rows out"
                )
            raise DataError(
                f"column {name!r} of {source.name} is empty in row {int(missing.argmax()) + 1}; fill it in, or leave "
                "the row out"
            )
        numbers = _numbers(batch.column(kind), kind, source.name) if kind else np.ones(batch.num_rows)
        codes = np.stack([codes for codes, _, _ in coded])
        places, into, rows = np.unique(codes, axis=1, return_inverse=True, return_counts=True)
        sums = np.bincount(into.ravel(), numbers, len(rows))
        for at, total, many in zip(places.T.tolist(), sums.tolist(), rows.tolist(), strict=True):
            key = tuple(levels[i] for i, (_, levels, _) in zip(at, coded, strict=True))
            if kind and (many > 1 or key in out):
                twice = ", ".join(f"{n} = {v!r}" for n, v in zip(keys, key, strict=True))
                raise DataError(f"{source.name} has more than one row with {twice}; add them up in one row")
            out[key] = out.get(key, 0.0) + total
    if not out:
        raise DataError(f"{source.name} has no rows")
    return out


def _batches(source: Source, columns: Sequence[str]) -> Iterable[pa.RecordBatch]:
    """Yield batches; text stays text, so that ``01`` is the group that it is in the data."""
    coded = pa.dictionary(pa.int32(), pa.string())
    types = {name: coded for name in columns if name not in ("count", "probability")}
    return (batch.select(list(columns)) for batch in source.batches(list(columns), types))


def _numbers(array: Any, name: str, where: str) -> Floats:
    """Return a column's numbers, which are finite and not negative."""
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ColumnError(f"column {name!r} of {where} has type {kind}; it must contain numbers")
    numbers = np.array([math.nan if v is None else float(v) for v in array.to_pylist()])
    bad = np.flatnonzero(~(numbers >= 0) | ~np.isfinite(numbers))
    if bad.size:
        value = numbers[bad[0]]
        what = "is missing" if math.isnan(value) else f"is {value:g}"
        raise DataError(
            f"column {name!r} of {where} {what} in row {int(bad[0]) + 1}; it must be 0 or more in every row"
        )
    if name == "count" and (numbers % 1).any():
        row = int(np.flatnonzero(numbers % 1)[0])
        raise DataError(
            f"column 'count' of {where} is {numbers[row]:g} in row {row + 1}, which is not a number of rows; call the "
            "column 'probability' if these are fractions"
        )
    return numbers


def _arranged(
    entries: Mapping[tuple[str, ...], float], *, by_label: bool, where: str, column: str = "label"
) -> NoiseTable:
    """Return the table of (true, noisy[, label]) -> number; combinations that are not there are 0."""
    true, noisy = (tuple(sorted({key[i] for key in entries})) for i in (0, 1))
    for names, what in ((true, "true"), (noisy, "noisy")):
        if len(names) > MOST_GROUPS:
            raise DataError(
                f"{where} names {len(names):,} {what} groups, such as {names[0]!r}; more than {MOST_GROUPS:,} are not "
                "supported: name another column, or merge them into fewer groups"
            )
    table = np.zeros((2, len(true), len(noisy)))
    for key, number in entries.items():
        label = _label(key[2], column, where) if by_label else 0
        table[label, true.index(key[0]), noisy.index(key[1])] += number
    if len(true) < 2:
        raise DataError(f"{where} has only the true group {true[0]!r}; there is nothing to compare")
    return NoiseTable(where, true, noisy, table if by_label else table[0], "count")


def _label(text: str, column: str, where: str) -> int:
    label = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}.get(text.lower())
    if label is None:
        raise DataError(f"column {column!r} of {where} has the value {text!r}; labels are 0 and 1")
    return label


def _as_probabilities(table: NoiseTable, keep: Keep | None) -> NoiseTable:
    """Return the table with the form that its sums tell, each sum exactly 1; of several that which is to be kept."""
    sums = {
        "joint": table.entries.sum(keepdims=True),
        "true-given-noisy": table.entries.sum(-2, keepdims=True),
        "noisy-given-true": table.entries.sum(-1, keepdims=True),
    }
    good: list[Form] = [name for name in FORMS if np.abs(sums[name] - 1).max() <= ROUNDED]
    form = next(iter(good), None)
    if len(good) > 1:
        if keep not in good:
            ways = " or ".join(f"`noise=FILE(keep={name})`" for name in good if name != "joint")
            raise UsageError(
                f"the probabilities of {table.source} can be {' or '.join(good)}: choose with {ways}"
            )
        form = keep
    if form is None:
        true = sums["noisy-given-true"]
        raise DataError(
            f"{_off(table, keep or 'true-given-noisy')} (neither P(true | noisy), nor P(noisy | true), whose sums go "
            f"from {true.min():.4g} to {true.max():.4g}, nor joint, with sum {table.entries.sum():.4g})"
        )
    return replace(table, entries=table.entries / sums[form], form=form)


def _off(table: NoiseTable, form: Form) -> str:
    """Return which sum of a form is furthest from 1."""
    where = f"column 'probability' of {table.source}"
    if form == "joint":
        return f"{where} sums to {table.entries.sum():.4g} and not to 1; correct it, or give counts"
    name, names = ("noisy", table.noisy) if form == "true-given-noisy" else ("true", table.true)
    sums = table.entries.sum(-2 if name == "noisy" else -1)
    at = np.unravel_index(int(np.abs(sums - 1).argmax()), sums.shape)
    label = f", label = {at[0]}" if table.by_label else ""
    return (
        f"{where}: the rows with {name} = {names[int(at[-1])]!r}{label} sum to {sums[at]:.4g} and not to 1; correct "
        "them, or give counts"
    )
