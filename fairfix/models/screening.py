r"""Screening: columns that a model must not, or cannot, learn from, each with one reason.

Every rule is decided by the values of all used rows. Large tables are first searched in a random sample of ``SAMPLED``
rows; only columns that a rule suspects there are read whole. A rule about agreement also asks whether chance explains
it: it acts only if columns of these values in random order would agree so well in less than one table of 10,000.

============  ==========================================================================================================
reason        columns
============  ==========================================================================================================
``excluded``  named by ``exclude``
``repeated``  of a name that several columns have
``type``      of a type that is not learned from, with infinite numbers, or with lists of several lengths
``date``      dates and times, also as text or as whole numbers such as 20240131
``constant``  with one value
``leak``      that predict the label: without error, or for at least ``AGREEMENT`` of the rows of each label
``after``     with values (or values other than the most frequent) in rows of one label only
``group``     one-to-one recodings of a protected column
``score``     copies, roundings and bins of the score
``output``    named like the output of a model
``index``     whole numbers that repeat less often than numbers drawn at random from their range
``id``        named like an ID, with at least half of the values distinct
``text``      texts, more than ``RARE`` of them unique: names and free text
``numbers``   numbers as text, with units or ambiguous signs
============  ==========================================================================================================
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from fairfix.data.choices import LeftOutReason
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.data_spec import SCORES, of_predict
from fairfix.data.encoder import group_codes, numbers
from fairfix.data.names import INDEX_NAME, few
from fairfix.data.table import Table
from fairfix.errors import ColumnError
from fairfix.models.features import column_of, kind_of, number_as_text
from fairfix.models.trace import Caution, Note
from fairfix.schema.common import LeftOut

LEAKS = frozenset(("leak", "after"))
"""Reasons that give away the label, which are also warned about."""

PLURALS: dict[LeftOutReason, str] = {
    "excluded": "excluded by `exclude`",
    "repeated": "with a repeated name",
    "type": "of another type",
    "date": "dates or times",
    "constant": "constant",
    "leak": "predicting the label",
    "after": "recorded after the outcome",
    "group": "recoding a protected column",
    "score": "copying the score",
    "output": "of model output",
    "index": "numbering rows",
    "id": "IDs",
    "text": "names or free text",
    "numbers": "numbers as text",
}
"""Reason -> how the message calls several columns that have it."""

SAMPLED = 10_000
"""Rows that are searched first."""

AGREEMENT = 0.95
"""Mean over both labels of the fraction of rows that a near-copy of the label predicts."""

STRONG = 0.1
"""Mean fraction of wrong rows of a strong feature, which a near-copy of the label must be seen to go below."""

SAME_ORDER = 0.999
"""Rank correlation from which a column copies a score, or a label that is a number."""

RARE = 0.2
"""Fraction of texts that no other row has, above which they are names or free text."""

FEWEST_TEXTS = 20
"""Distinct values that a column needs to count as names, free text or IDs."""

FEW = 20
"""Distinct values of a column that may be bins of a score."""

PURE_ROWS = (100, 500)
"""Rows that values recorded after the outcome need: fewer if their label is the rarer one, or a leak is, ..."""

PURE_PART = 0.1
"""... the fraction of the rows of their label, ..."""

MOST_FREQUENT = 0.8
"""... and the largest fraction of all rows that their label may have."""

UNLIKELY = math.log(1e-4)
"""Log-probability, over all columns of a table, that chance explains what a rule sees."""

LARGEST = 1e150
"""Numbers from here on cannot be squared."""

DATE = re.compile(
    r"\s*(\d{1,4}([-/.])\d{1,2}\2\d{1,4}([T ]\s*\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
    r"|(\d{1,2}[- ])?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- ,.]+(\d{1,2},? +)?\d{2,4})\s*",
    re.IGNORECASE,
)
"""A date, a time, or both, as text."""

OUTPUTS = frozenset(
    (
        *("pred", "preds", "predicted", "prediction", "predictions", "yhat"),
        *("proba", "prob", "probability", "probabilities", "logit", "logits"),
    )
)
OF_SCORES = frozenset(("decile", "risk", "model", "raw", "text", "scaled"))
"""Words in the names of a model's outputs; the latter only together with "score"."""

ID_WORDS = frozenset(("id", "ids", "uuid", "guid", "key", "ssn", "email", "phone", "url", "number", "no"))
"""Last words in the names of IDs."""


def screen_types(schema: pa.Schema, names: Sequence[str]) -> list[LeftOut]:
    """Return which of some columns the types or the names alone rule out."""
    times, own = Counter(schema.names), of_predict(schema)
    whys = ((name, _by_type(name, schema, times[name], name in own)) for name in dict.fromkeys(names))
    return [LeftOut(column=name, reason=why[0], text=why[1]) for name, why in whys if why]


def _by_type(name: str, schema: pa.Schema, times: int, of_ours: bool) -> Why:
    """Return why the name or the type of a column rules it out."""
    if times > 1:
        return "repeated", f"{times} columns have this name"
    if INDEX_NAME.fullmatch(name):
        return "index", "is the index of a data frame"
    if of_ours:
        return "output", "is output of 'fairfix predict'"
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_temporal(kind):
        return "date", "holds dates or times"
    try:
        kind_of(name, kind)
    except ColumnError:
        return "type", f"has type {kind}, which is not supported"
    return None


def screen(table: Table, names: Sequence[str]) -> list[LeftOut]:
    """Return which of the feature columns of a table their values rule out, in the order of the columns.

    Labels, scores and groups are those of the table.
    """
    few, whole = _views(table, len(names))
    out = {name: verdict for name in names if (verdict := _confirmed(name, few, whole, TableView.why))}
    first, all_rows = few.outcome, whole.outcome
    if first is not None and all_rows is not None:  # what is only there where a leak is, leaks as well
        for name in [name for name, one in out.items() if one.reason == "leak"]:
            part = few.told_by(name, first)
            copy = part if few is whole else whole.told_by(name, all_rows)
            for other in names:
                if other not in out or out[other].reason not in LEAKS:
                    verdict = _confirmed(other, part, copy, TableView.after)
                    if verdict is not None:
                        text = f"has values only where {name!r}, which predicts the label, is the same"
                        out[other] = LeftOut(column=other, reason="after", text=text)
    return [out[name] for name in names if name in out]


def leaks_among(table: Table, names: Sequence[str]) -> list[LeftOut]:
    """Return which of the feature columns of a table give away its label."""
    few, whole = _views(table, len(names))
    return [verdict for name in names if (verdict := _confirmed(name, few, whole, TableView.leak))]


def of_left_out(left_out: Sequence[LeftOut], candidates: int) -> Iterator[Note]:
    """Yield how many of some candidates are left out, and warn of those that give away the label."""
    leaks = [one.column for one in left_out if one.reason in LEAKS]
    if leaks:
        yield Caution(
            f"columns that reveal the label are left out: {few(leaks, 6)}. If one of them is known before the outcome, "
            "name the columns to use with `features`",
            "leak",
        )
    if left_out:
        counts = Counter(one.reason for one in left_out)
        words = ", ".join(f"{counts[reason]} {text}" for reason, text in PLURALS.items() if counts[reason])
        yield Note(
            f"{len(left_out)} of {candidates} columns are left out of the features: {words}. The report lists them; "
            "to choose the columns to use, give `features`",
            "left_out",
        )


def of_leaks(leaks: Sequence[LeftOut]) -> Iterator[Note]:
    """Yield which features that were asked for give away the label."""
    for one in leaks:
        yield Caution(
            f"feature {one.column!r} {one.text}. Unless it is known before the outcome, leave it out with "
            f"`exclude={one.column}`",
            "leak",
        )


Why = tuple[LeftOutReason, str] | None
"""Reason why a column is left out, and its text; None where it is not."""

Rule = Callable[["TableView", str], Why]
"""A question about a column of a view."""


def _views(table: Table, columns: int) -> tuple[TableView, TableView]:
    """Return a table in part and whole."""
    whole = TableView(table, columns)
    if len(table) <= SAMPLED:
        return whole, whole
    rows = np.random.default_rng(0).choice(len(table), SAMPLED, replace=False)
    bare = replace(table, draw=None)
    return TableView(bare.take(np.sort(rows)), columns, part=True), whole


def _confirmed(name: str, few: TableView, whole: TableView, rule: Rule) -> LeftOut | None:
    """Return what a rule finds in all rows; looks at a part of them first."""
    why = rule(few, name)
    why = why if why is None or few is whole else rule(whole, name)
    return None if why is None else LeftOut(column=name, reason=why[0], text=why[1])


@dataclass(frozen=True)
class CodedColumn:
    """A column as its distinct values: a code per row, how many there are, and which rows are missing."""

    codes: Ints
    size: int
    missing: Bools
    reals: Floats | Ints | None
    """Its numbers, with NaN for missing ones; None where it holds text."""
    levels: Sequence[str] = ()
    """Its texts, by code; the last one is that of missing rows, if there are any."""

    @cached_property
    def rows(self) -> Ints:
        """Rows of each distinct value, shape (size,)."""
        return np.bincount(self.codes, minlength=self.size)

    @property
    def present(self) -> Iterator[Bools]:
        """Yield which rows have a value, and which another one than the most frequent."""
        if self.missing.any():
            yield ~self.missing
        yield self.codes != int(np.argmax(self.rows))


class TableView:
    """Rows of a table, and questions about their columns; in a ``part`` of the rows, the rules suspect more."""

    def __init__(
        self, table: Table, columns: int, outcome: Bools | None = None, *, part: bool = False
    ) -> None:
        self.table, self.columns, self.part, rows = table, max(columns, 1), part, table.rows
        self.has_outcome = outcome is not None
        """Whether a column that predicts the label stands in for it."""
        if outcome is None and table.data_spec.binary and rows.label is not None:
            outcome = np.asarray(rows.label) == 1
        self.outcome = outcome
        """Which rows have label 1; None where labels are not of two values."""

    def told_by(self, name: str, outcome: Bools) -> TableView:
        """Return the rows with what a column says of the label, an outcome, in place of it."""
        one = self.entries(name)
        cells = one.missing.astype(np.int64) if one.size > self._most_cells else one.codes
        return TableView(self.table, self.columns, _likelier(cells, outcome)[cells], part=self.part)

    @property
    def _most_cells(self) -> float:
        return max(FEW, len(self.table) / 20)

    def entries(self, name: str) -> CodedColumn:
        """Return a column that is a number or a text."""
        column = column_of(self.table, name)
        if kind_of(name, column.type) == "category":
            codes, levels, missing = group_codes(column, name)
            gone = np.zeros(len(codes), dtype=bool) if missing is None else missing
            used, codes = np.unique(codes, return_inverse=True)  # a dictionary may hold more
            return CodedColumn(codes, len(used), gone, None, [levels[i] for i in used])
        reals = numbers(column, name, "feature", keep_integers=True)
        gone = np.isnan(reals) if reals.dtype.kind == "f" else np.zeros(len(reals), dtype=bool)
        distinct, codes = np.unique(reals, return_inverse=True)  # NaN is one value, the last
        return CodedColumn(codes, len(distinct), gone, reals)

    def why(self, name: str) -> Why:
        """Return why a column is not to be learned from; None where nothing speaks against it."""
        if self._is_vector(name):
            return _ragged(self.table.features.column(name))
        one = self.entries(name)
        if one.size <= 1:
            return ("constant", "has one value in all rows")
        if one.reals is not None and not np.all(np.abs(one.reals[~one.missing].astype(float)) < LARGEST):
            return ("type", "holds infinite numbers, or numbers too large to be squared")
        if _dates(one):
            return ("date", "holds dates or times")
        return (
            self._leak(one)
            or self._after(one)
            or self._group(one)
            or self._score(one)
            or _output(name)
            or _index(name, one, UNLIKELY - math.log(self.columns))
            or _text(one)
        )

    def leak(self, name: str) -> Why:
        """Return that a column gives away the label."""
        if self._is_vector(name):
            return None
        one = self.entries(name)
        return self._leak(one) or self._after(one)

    def after(self, name: str) -> Why:
        """Return that a column has values for one outcome only."""
        return None if self._is_vector(name) else self._after(self.entries(name))

    def _is_vector(self, name: str) -> bool:
        return kind_of(name, self.table.features.column(name).type) == "vector"

    def _sure(self, rows: Sequence[int] | Ints, errors: int, log_rules: float) -> bool:
        """Tell whether chance does not explain that a rule is wrong for so few rows.

        ``rows`` are those of each class, ``log_rules`` is the logarithm of how many rules could have been it.
        """
        if self.part:
            return True
        n = int(np.sum(rows))
        orders = math.lgamma(n + 1) - sum(math.lgamma(k + 1) for k in rows)
        near = min(errors, n // 2)
        ways = math.lgamma(n + 1) - math.lgamma(near + 1) - math.lgamma(n - near + 1) + math.log(errors + 1)
        return log_rules + ways - orders <= UNLIKELY - math.log(self.columns)

    def _leak(self, one: CodedColumn) -> Why:
        """Return that a column predicts the label."""
        table = self.table
        if self.outcome is None:
            label = table.rows.label if table.data_spec.task == "regression" else None
            if table.data_spec.columns.classes:
                groups = table.groups(table.data_spec.columns.classes[:1])
                if _one_to_one(one.codes, groups.codes) and self._sure(
                    one.rows, 0, math.lgamma(one.size + 1)
                ):
                    return ("leak", "is the label, with other names for its classes")
            if label is not None and _same_order(one, label):
                return ("leak", "has the order of the label, or the reverse")
            return None
        ones = int(self.outcome.sum())
        both = (len(self.outcome) - ones, ones)
        if not all(both):
            return None
        best, errors, log_rules = max(self._predictions(one, self.outcome), key=lambda verdict: verdict[0])
        if best < AGREEMENT - 0.02 * self.part or not self._sure(both, errors, log_rules):
            return None
        weight = 4.0 / (1.0 / both[0] + 1.0 / both[1])  # rows of equal labels that tell as much
        if errors and not self.part and weight * _divergence(1.0 - best, STRONG) < -math.log(0.001):
            return None
        text = (
            f"predicts the label of {best:.1%} of the rows (mean over both labels)"
            if errors
            else "predicts the label without error"
        )
        return ("leak", text)

    def _predictions(self, one: CodedColumn, outcome: Bools) -> Iterator[tuple[float, int, float]]:
        """Yield (balanced accuracy, wrong rows, log of the number of rules) of simple rules of a column."""
        cells = [one.missing.astype(np.int64)] if one.missing.any() else []
        cells += [one.codes] if one.size <= self._most_cells else []
        for codes in cells:
            guess = _likelier(codes, outcome)[codes]
            right = (float(np.mean(guess[outcome == label] == label)) for label in (True, False))
            yield sum(right) / 2, int(np.count_nonzero(guess != outcome)), (codes.max() + 1) * math.log(2)
        if one.reals is not None:  # a threshold; missing ones, which sort last, on either side of it
            tables = np.stack([np.bincount(one.codes, outcome == label, one.size) for label in (False, True)])
            for shift in range(2 if one.missing.any() else 1):
                below = np.cumsum(np.roll(tables, shift, axis=1), axis=1)
                total = below[:, -1:]
                apart = below[1] / total[1] - below[0] / total[0]
                at = int(np.argmax(np.abs(apart)))
                wrong = below[0, at] + total[1, 0] - below[1, at]
                wrong = wrong if apart[at] > 0 else total.sum() - wrong
                yield (1 + abs(float(apart[at]))) / 2, int(wrong), math.log(4 * (2 * int(wrong) + 1))
        yield 0.0, 0, 0.0

    def _after(self, one: CodedColumn) -> Why:
        """Return that a column has values in rows of one label only."""
        outcome = self.outcome
        if outcome is None:
            return None
        for label in (True, False):
            own = outcome == label
            part = float(own.mean())
            if not 0 < part <= MOST_FREQUENT + 0.02 * self.part:
                continue
            least = PURE_PART * part * len(own)
            least = 0.7 * least if self.part else max(PURE_ROWS[part > 0.5 and not self.has_outcome], least)
            for present in one.present:
                many = int(present.sum())
                if many >= least and bool(own[present].all()):
                    own_name = "1" if label else "0"
                    return (
                        "after",
                        f"has values in {many:,} rows, all of label {own_name}: recorded after it",
                    )
        return None

    def _group(self, one: CodedColumn) -> Why:
        """Return that a column names the groups of a protected column."""
        for column in self.table.data_spec.columns.protected:
            codes = self.table.groups([column]).codes
            if _one_to_one(one.codes, codes) and self._sure(one.rows, 0, math.lgamma(one.size + 1)):
                return ("group", f"is the protected column {column!r} with other names")
        return None

    def _score(self, one: CodedColumn) -> Why:
        """Return that a column copies, rounds or bins the score."""
        score = self.table.rows.score
        if score is None:
            return None
        if _same_order(one, score):
            return ("score", "has the order of the score, or the reverse")
        if one.size <= FEW and _bins(one, score) and self._sure(one.rows, 0, math.lgamma(one.size + 1)):
            return ("score", f"has {one.size} values, which are ranges of the score")
        return None


def _divergence(first: float, second: float) -> float:
    """Return the Kullback-Leibler divergence of two probabilities, 0 where the first is the larger one."""
    if first >= second:
        return 0.0
    rest = (1.0 - first) * math.log((1.0 - first) / (1.0 - second))
    return rest + (first * math.log(first / second) if first else 0.0)


def _likelier(codes: Ints, outcome: Bools) -> Bools:
    """Return for which cells label 1 is likelier than for all rows, shape (cells,)."""
    ones, all_rows = (np.bincount(codes, by) for by in (outcome.astype(np.float64), None))
    return np.asarray(ones * len(outcome) > all_rows * outcome.sum())


def _one_to_one(first: Ints, second: Ints) -> bool:
    """Tell whether each of several values goes with one other value, and back."""
    sizes = [int(codes.max()) + 1 for codes in (first, second)]
    pairs = len(np.unique(first.astype(np.int64) * sizes[1] + second))
    return pairs > 1 and all(pairs == len(np.unique(codes)) for codes in (first, second))


def _same_order(one: CodedColumn, score: Floats) -> bool:
    """Tell whether numbers are in the order of others, but for rounding."""
    here = ~one.missing
    if one.reals is None or int(here.sum()) < max(FEW, 0.9 * len(here)) or one.size <= 2:
        return False
    ranks = [_ranks(part[here]) for part in (one.reals, score)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return False
    return bool(abs(np.corrcoef(ranks[0], ranks[1])[0, 1]) >= SAME_ORDER)


def _ranks(entries: Floats | Ints) -> Floats:
    """Return the place of each number in their order, the mean one of equal numbers, shape (n,)."""
    codes, rows = np.unique(entries, return_inverse=True, return_counts=True)[1:]
    return np.asarray((np.cumsum(rows) - (rows - 1) / 2)[codes])


def _bins(one: CodedColumn, score: Floats) -> bool:
    """Tell whether each value of a column is a range of scores that no other value has."""
    order = np.lexsort((one.codes, score))
    codes, sorted_score = one.codes[order], score[order]
    changes = codes[1:] != codes[:-1]
    return int(changes.sum()) == one.size - 1 and not bool(
        (changes & (sorted_score[1:] == sorted_score[:-1])).any()
    )


def _ragged(column: pa.ChunkedArray) -> Why:
    """Return that lists cannot be learned from: of several lengths, empty, or with entries that are no numbers."""
    import pyarrow.compute as pc

    lengths = pc.unique(pc.list_value_length(column).drop_null())
    if len(lengths) != 1 or lengths[0].as_py() == 0:
        return ("type", "holds lists of several lengths, or none")
    flat = pc.list_flatten(column)
    if flat.null_count or not pc.all(pc.is_finite(flat)).as_py():
        return ("type", "holds lists with missing or infinite numbers")
    return None


def _dates(one: CodedColumn) -> bool:
    """Tell whether all values are dates or times: texts, or whole numbers of year, month and day."""
    if one.reals is None:
        texts = [level for level in one.levels[: len(one.levels) - bool(one.missing.any())] if level.strip()]
        return bool(texts) and bool(np.mean([bool(DATE.fullmatch(text)) for text in texts[:1000]]) >= 0.95)
    if one.size < 10:
        return False
    days = np.unique(one.reals[~one.missing])
    if not (days[0] >= 1000_01_01 and days[-1] <= 2999_12_31 and (days == np.floor(days)).all()):
        return False
    month, day = days // 100 % 100, days % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def _output(name: str) -> Why:
    """Return that a column is named like the output of a model."""
    words = set(_words(name))
    if (
        name.lower() in SCORES
        or words & OUTPUTS
        or words == {"score"}
        or ("score" in words and words & OF_SCORES)
    ):
        return ("output", "is named like the output of a model")
    return None


def _index(name: str, one: CodedColumn, unlikely: float) -> Why:
    """Return that whole numbers are assigned, not measured.

    Of ``n`` numbers drawn from ``m`` at random, by any distribution, about ``n (n - 1) / 2 m`` pairs or more are equal.
    Numbers with far fewer equal pairs were given out, one for each. ``unlikely`` is the log-probability that chance
    explains it.
    """
    here = ~one.missing
    n = int(here.sum())
    if one.reals is None or n < 10:
        return None
    reals = one.reals[here]
    if not (reals == np.floor(reals)).all():
        return None
    span = float(reals.max()) - float(reals.min()) + 1
    rows = one.rows[: one.size - 1] if one.missing.any() else one.rows
    pairs, expected = float((rows * (rows - 1) // 2).sum()), n * (n - 1) / (2 * span)
    if len(rows) >= 0.9 * n and _log_below(pairs, expected) <= unlikely:
        return ("index", "numbers the rows: whole numbers that rarely repeat in their range")
    if len(rows) == n == span and bool((np.diff(reals.astype(np.float64)) == 1).all()):
        return ("index", "is the number of the row")
    if len(rows) >= max(FEWEST_TEXTS, n / 2) and (words := _words(name)) and words[-1] in ID_WORDS:
        return ("id", "is named like an ID, and its values rarely repeat")
    return None


def _log_below(pairs: float, expected: float) -> float:
    """Return an upper bound of the logarithm of the probability that a Poisson number is at most ``pairs``."""
    if pairs >= expected:
        return 0.0
    return pairs - expected + (pairs * math.log(expected / pairs) if pairs else 0.0)


def _text(one: CodedColumn) -> Why:
    """Return that texts are names or free text, or numbers that cannot be read as such."""
    if one.reals is not None:
        return None
    gone = bool(one.missing.any())
    rows, n = (one.rows[:-1] if gone else one.rows), int((~one.missing).sum())
    unique = int((rows == 1).sum())
    if number := number_as_text(one.levels[: len(rows)]):
        return ("numbers", f"holds numbers as text, such as {number!r}")
    if len(rows) > FEWEST_TEXTS and unique > RARE * n:
        return ("text", f"holds names or free text: {unique:,} of {n:,} values occur once")
    return None
