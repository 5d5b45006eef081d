"""Members that are linear in more than the columns of their matrix: in cubic splines of some, or in a sum of trees.

A basis makes further columns of a matrix; a member of it is linear in the columns and in these. What was learned of the
basis is kept in the member, so that it takes a matrix as any other does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from fairfix.data.codec import Array, FieldForm, Inner, Setting
from fairfix.data.counts import Floats, Ints
from fairfix.models.members import LinearMember, Member, TreesMember, on_matrix
from fairfix.models.program import Program

KNOTS = 7
"""Knots of a spline: the most that Harrell, *Regression Modeling Strategies* (2nd ed., 2.4.6), finds useful. The
penalty keeps small what the rows do not support."""

OUTER = 0.025
"""Share of the rows beyond the first knot, and beyond the last: Harrell's for seven knots."""

SHOWN = 1e-6
"""Least part of a curve, by its size on the rows, that is not in the curves before it; less is rounding."""


@dataclass(frozen=True, eq=False)
class Splines:
    r"""Natural cubic splines of some columns: linear beyond the outer knots, and constant beyond the ends.

    With ``x`` moved between the ends, ``u = min(x, t_K)`` and the knots ``t_1 < ... < t_K``, a curve is

    .. math:: a + b u + \sum_k g_k (u - t_k)_+^3 + s\, (x - t_K)_+ .

    Attributes
    ----------
    column
        Which column each is of, shape (C,).
    knots
        Shape (C, K); the last is repeated where there are fewer.
    ends
        Least and greatest value, shape (C, 2).
    curves
        ``a``, ``b``, ``s`` and ``g`` of each curve, shape (C, M, 3 + K); all 0 where there are fewer.
    """

    column: Ints
    knots: Floats
    ends: Floats
    curves: Floats

    @classmethod
    def learn(cls, X: Floats, columns: Mapping[int, int | None], weight: Floats) -> Splines:
        """Return the splines of columns of a matrix, shape (n, d).

        ``columns``: numbers of columns, each with that of the indicator of missing entries, None where none are.
        ``weight``: of the rows, shape (n,), not negative. A column in which fewer than three knots can be told apart
        has none and stays linear. Curves have, on the rows, the mean 0 and the variance 1, and do not go with one
        another or with the column: the squared coefficients are variances of what each adds to the sum.
        """
        made = []
        for column, gone in columns.items():
            there = weight > 0 if gone is None else (weight > 0) & (X[:, gone] == 0)
            value, place = np.unique(X[there, column], return_inverse=True)
            mass = np.bincount(place, weight[there], value.size).astype(np.float64)
            knots = knots_of(value, mass)
            curves = _uncorrelated(knots, value, mass) if knots.size >= 3 else None
            if curves is not None:
                wide = np.zeros((KNOTS - 2, 3 + KNOTS))
                wide[: len(curves), : curves.shape[1]] = curves
                padded = np.pad(knots, (0, KNOTS - knots.size), mode="edge")
                made.append((column, padded, value[[0, -1]], wide))
        numbers = [one[1:] for one in made]
        shapes = (KNOTS,), (2,), (KNOTS - 2, 3 + KNOTS)
        parts = [
            np.array([one[i] for one in numbers], dtype=np.float64).reshape(-1, *shape)
            for i, shape in enumerate(shapes)
        ]
        return cls(np.array([one[0] for one in made], dtype=np.int64), *parts)

    def expand(self, X: Floats) -> Floats:
        """Return the matrix with its splined columns between their ends, and after them the curves, (n, d + C M)."""
        return on_matrix(lambda program, X: program.stack(self.write(program, X)), X)

    def write(self, program: Program, X: Sequence[int]) -> list[int]:
        """Write the columns of the expanded matrix."""
        out, more = [*X], list[int]()
        for column, t, ends, curves in zip(self.column, self.knots, self.ends, self.curves, strict=True):
            x = out[column] = program.clip(X[column], float(ends[0]), float(ends[1]))
            more += write_curves(program, t, curves, x)
        return [*out, *more]


def knots_of(value: Floats, mass: Floats) -> Floats:
    """Return at most ``KNOTS`` knots among increasing values with masses, shape (m,): even in the mass between them.

    A value of much mass is one knot, and the others are even in the mass that is left.
    """
    upto, knots, reached = np.cumsum(mass) / mass.sum(), [], -1
    for left in range(KNOTS, 0, -1):
        passed = OUTER if reached < 0 else float(upto[reached])
        level = passed if reached < 0 else passed + (1.0 - OUTER - passed) / left
        at = max(int(np.searchsorted(upto, level - 1e-9)), reached + 1)  # sums of masses are rounded
        if (reached >= 0 and passed > 1.0 - OUTER - 1e-9) or at >= value.size:
            break
        knots.append(float(value[at]))
        reached = at
    return np.array(knots)


def _uncorrelated(knots: Floats, value: Floats, mass: Floats) -> Floats | None:
    """Return curves that span the natural splines of some knots, as :class:`Splines` has them, (K - 2, 3 + K).

    None where rounding cannot tell them apart. The first curves are Harrell's truncated cubes.
    """
    t, many = knots, knots.size
    span, last = (t[-1] - t[0]) ** 2, t[-1] - t[-2]
    raw = np.zeros((many, 3 + many))
    raw[0, 0], raw[1, 1], raw[1, 2] = 1.0, 1.0, 1.0
    for j in range(many - 2):
        raw[2 + j, 3 + j] = 1.0 / span
        raw[2 + j, 3 + many - 2] = -(t[-1] - t[j]) / (last * span)
        raw[2 + j, 2] = 3.0 * (t[-1] - t[j]) * (t[-2] - t[j]) / span
    rows = np.sqrt(mass / mass.sum())[:, None] * curves_at(knots, raw, value)
    upper = np.linalg.qr(rows, mode="r")
    if not (np.abs(np.diag(upper)) > SHOWN * np.sqrt((rows**2).sum(axis=0))).all():
        return None
    turned = np.linalg.inv(upper) * np.sign(np.diag(upper))
    return np.asarray((turned.T @ raw)[2:])


def write_curves(program: Program, knots: Floats, curves: Floats, x: int) -> list[int]:
    """Write curves, (M, 3 + K), at a value between the ends."""
    last, zero = program.constant(float(knots[-1])), program.constant(0.0)
    u = program.add("minimum", x, last)
    terms = [u, program.add("maximum", program.add("subtract", x, last), zero)]
    for knot in knots.tolist():
        over = program.add("maximum", program.affine(u, 1.0, -knot), zero)
        terms.append(program.add("multiply", program.add("multiply", over, over), over))
    return [program.affine(program.dot(terms, one[1:]), 1.0, float(one[0])) for one in curves]


def curves_at(knots: Floats, curves: Floats, x: Floats) -> Floats:
    """Return curves, (M, 3 + K), at values between the ends, shape (n,): shape (n, M)."""
    return on_matrix(lambda program, X: program.stack(write_curves(program, knots, curves, X[0])), x[:, None])


SPLINES = {
    "column": Array("<i8", ("splined",), 0),
    "knots": Array("<f8", ("splined", KNOTS)),
    "ends": Array("<f8", ("splined", 2)),
    "curves": Array("<f8", ("splined", KNOTS - 2, 3 + KNOTS)),
}


@dataclass(frozen=True, eq=False)
class SplinesMember(Member):
    """``link([X, curves of X] coef + intercept)``."""

    kind: ClassVar[str] = "splines"
    features: Annotated[int, Meta(ge=1), Setting()]
    """Number of columns of the matrix."""
    linear: Annotated[LinearMember, Inner(LinearMember, LinearMember.parts())]
    splines: Annotated[Splines, Inner(Splines, SPLINES)]

    @property
    def sound(self) -> bool:
        """Whether each curve has a coefficient, and each spline is of a column of its own."""
        own, many = self.splines.column, self.splines.curves.shape[0] * self.splines.curves.shape[1]
        ends = self.splines.ends
        return bool(
            self.linear.sound
            and len(self.linear.coef) == self.features + many
            and (own < self.features).all()
            and np.unique(own).size == own.size
            and (ends[:, 0] <= ends[:, 1]).all()
        )

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return self.features

    @property
    def classes_given(self) -> int | None:
        """Number of classes of the link; None for one number."""
        return self.linear.classes_given

    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write the linked linear form."""
        return self.linear.write(program, self.splines.write(program, X))


SUM_OF_TREES: Mapping[str, FieldForm] = {
    name: part for name, part in TreesMember.parts().items() if name != "link"
}


@dataclass(frozen=True, eq=False)
class BoostedMember(Member):
    """``link([X, sum of trees of X] coef + intercept)``."""

    kind: ClassVar[str] = "boosted"
    linear: Annotated[LinearMember, Inner(LinearMember, LinearMember.parts())]
    trees: Annotated[TreesMember, Inner(partial(TreesMember, link="identity"), SUM_OF_TREES)]

    @property
    def sound(self) -> bool:
        """Whether both are, the trees make one sum, and it has a coefficient as each column has."""
        return (
            self.linear.sound
            and self.trees.sound
            and self.trees.baseline.size == 1
            and len(self.linear.coef) == self.trees.features + 1
        )

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return self.trees.features

    @property
    def classes_given(self) -> int | None:
        """Number of classes of the link; None for one number."""
        return self.linear.classes_given

    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write the linked linear form."""
        return self.linear.write(program, [*X, self.trees.write(program, X)])


KINDS: Mapping[str, Any] = Member.kinds
"""Kind -> member, those of a basis among them."""
