"""What the programs of all kinds of predictors share: the program so far, and the saved form that it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.codec import Arrays
from fairfix.data.merging import MISSING
from fairfix.data.numeric_groups import band_names, pieces
from fairfix.models.export.program import Program, tree_settings
from fairfix.models.features import LEAST_CHANCE
from fairfix.models.members import HIGHEST
from fairfix.models.repaired import Repaired


class Rule:
    """What the functions of the kinds share: the program so far, and the saved form."""

    def __init__(self, repaired: Repaired, settings: Mapping[str, Any], arrays: Arrays) -> None:
        self.program = Program()
        self.settings, self.arrays = settings, arrays
        self.reading = repaired.reading
        self.uses_score = False

    # ------------------------------------------------------------------ inputs

    @property
    def raw_score(self) -> int:
        """The score as it comes."""
        self.uses_score = True
        return self.program.add("number", column=self.reading.columns.score, kind="number")

    @property
    def is_raw(self) -> bool:
        """Whether the score stands for no probability."""
        return self.reading.task == "regression" or self.reading.score_scale == "raw"

    @property
    def probability(self) -> int:
        """The score as a probability."""
        score = self.raw_score
        match self.reading.score_scale:
            case "percent":
                return self.program.add("divide", score, self.program.constant(100.0))
            case "margin":
                half = self.program.add("add", self.program.constant(1.0), score)
                return self.program.add("divide", half, self.program.constant(2.0))
            case "logit":
                return self.program.expit(score)
        return score

    @property
    def ranking(self) -> int:
        """``2 p - 1``, or a raw score as it is."""
        return self.raw_score if self.is_raw else self.program.affine(self.probability, 2.0, -1.0)

    def code(self) -> int:
        """The place of the row's group among the levels of the fit, plus 1; 0 for any other group."""
        columns, levels, program = self.settings["columns"], self.settings["levels"], self.program
        if not columns:
            return program.constant(1.0)
        names = [sorted({level[i] for level in levels}) for i in range(len(columns))]
        places = [self.place(column, own) for column, own in zip(columns, names, strict=True)]
        shape = [len(own) + 1 for own in names]
        code = places[0]
        for place, size in zip(places[1:], shape[1:], strict=True):
            code = program.add("add", program.affine(code, float(size), 0.0), place)
        table = np.zeros(math.prod(shape))
        for k, level in enumerate(levels):
            at = [own.index(one) + 1 for own, one in zip(names, level, strict=True)]
            table[np.ravel_multi_index(at, shape)] = k + 1
        same = np.array_equal(table, np.arange(table.size))
        return code if same else program.take(table.tolist(), code)

    def place(self, column: str, levels: Sequence[str]) -> int:
        """The place of a column's entry among levels, plus 1; 0 for any other. Numbers in bands have their band's."""
        program, edges = self.program, self.reading.bands.get(column)
        if not edges:
            merged = dict(self.reading.merge.get(column, {}))
            also = {"merged": merged} if merged else {}
            return program.affine(program.add("level", column=column, levels=list(levels), **also), 1.0, 1.0)
        places = {level: i + 1.0 for i, level in enumerate(levels)}
        entry = program.add("number", column=column, kind="number")
        names, (cuts, bands) = band_names(edges), pieces(edges)
        piece = program.search(cuts, entry, right=True)
        of_band = program.take([places.get(names[band], 0.0) for band in bands], piece)
        gone = program.constant(places.get(MISSING, 0.0))
        return program.add("choose", program.add("is_missing", entry), gone, of_band)

    def by_group(self, rule: Callable[[int], int]) -> int:
        """What ``rule(k)`` gives in group ``k``; missing in any other."""
        program, code = self.program, self.code()
        out = program.constant(math.nan)
        for k in reversed(range(len(self.settings["levels"]))):
            out = program.add("choose", program.add("equal", code, program.constant(k + 1.0)), rule(k), out)
        return out

    def of_each_group(self, numbers: npt.NDArray[np.float64]) -> int:
        """The number of the row's group; missing in any other."""
        return self.program.take([math.nan, *numbers.tolist()], self.code())

    def unrepaired(self, gives: str) -> int:
        """What the base gives the row: its score where values are given, else its decision at the threshold."""
        by_score = self.reading.columns.score is not None
        score = self.raw_score if by_score and gives == "decision" else self.scorer("scorer")[0]
        if gives == "value":
            return score
        accepted = self.program.add("at_most", self.program.constant(self.reading.thresholds[0]), score)
        return self.program.add("choose", accepted, self.program.constant(1.0), self.program.constant(0.0))

    # ------------------------------------------------------------------ scorers

    def scorer(self, name: str, settings: Any = None) -> list[int]:
        """The results of a scorer: one, or one per class."""
        settings = self.settings[name] if settings is None else settings
        if "member" in settings:
            out = self._member(f"{name}.", settings)
        else:
            out = [self.raw_score if self.reading.task == "regression" else self.probability]
        bounds = settings["bounds"]
        return out if bounds is None else [self.program.clip(one, *bounds) for one in out]

    def _member(self, stem: str, settings: Any) -> list[int]:
        kind, own = settings["member"]["kind"], settings["member"]["settings"]
        arrays = {name.removeprefix(stem): one for name, one in self.arrays.items() if name.startswith(stem)}
        program = self.program
        if kind == "constant":
            return [program.constant(one) for one in arrays["value"].tolist()]
        X = [step for one in settings["features"] for step in self._columns(one, gaps=kind == "trees")]
        if kind == "splines":
            X = self._splined(X, arrays)
        if kind == "boosted":
            roots, start = arrays["roots"].tolist(), float(arrays["baseline"][0])
            X = [*X, program.add("trees", *X, **tree_settings(arrays, roots, start))]
        if kind in ("linear", "splines", "boosted"):
            sums = [
                program.add("add", self.dot(X, weights), program.constant(shift))
                for weights, shift in zip(arrays["coef"].T, arrays["intercept"].tolist(), strict=True)
            ]
            return self._linked(sums, own["link"])
        if kind == "network":
            zero = program.constant(0.0)
            inner = [
                program.add("maximum", program.add("add", self.dot(X, weights), program.constant(bias)), zero)
                for weights, bias in zip(arrays["hidden"].T, arrays["hidden_bias"].tolist(), strict=True)
            ]
            return [
                program.expit(
                    program.affine(self.dot(inner, arrays["out"]), 1.0, float(arrays["out_bias"][0]))
                )
            ]
        assert kind == "trees"
        sums = []
        for k, start in enumerate(arrays["baseline"].tolist()):
            roots = arrays["roots"][arrays["classes"] == k].tolist()
            sums.append(program.add("trees", *X, **tree_settings(arrays, roots, start)))
        return self._linked(sums, own["link"])

    def _splined(self, X: list[int], arrays: Mapping[str, npt.NDArray[Any]]) -> list[int]:
        """The columns of a matrix, some between their ends, and their curves (:mod:`fairfix.models.spline_basis`)."""
        program, zero, more = self.program, self.program.constant(0.0), list[int]()
        own = (arrays[name] for name in ("column", "knots", "ends", "curves"))
        for column, t, ends, curves in zip(*own, strict=True):
            x = X[column] = program.clip(X[column], float(ends[0]), float(ends[1]))
            last = program.constant(float(t[-1]))
            u = program.add("minimum", x, last)
            terms = [u, program.add("maximum", program.add("subtract", x, last), zero)]
            for knot in t.tolist():
                over = program.add("maximum", program.affine(u, 1.0, -knot), zero)
                terms.append(program.add("multiply", program.add("multiply", over, over), over))
            more += [program.affine(self.dot(terms, one[1:]), 1.0, float(one[0])) for one in curves]
        return [*X, *more]

    def dot(self, X: Sequence[int], weights: npt.NDArray[np.float64]) -> int:
        """The sum of numbers times weights."""
        return self.program.add("dot", *X, weights=weights.tolist())

    def _linked(self, sums: list[int], link: str) -> list[int]:
        program = self.program
        if link == "identity":
            return sums[:1]
        if link == "exp":
            return [program.add("exp", program.add("minimum", sums[0], program.constant(HIGHEST)))]
        if link == "shares":
            if len(sums) == 1:
                return [program.clip(sums[0], 0.0, 1.0)]
            zero = program.constant(0.0)
            shares = [program.add("maximum", one, zero) for one in sums]
            total = self.dot(shares, np.ones(len(shares)))
            empty, whole = program.add("at_most", total, zero), program.constant(1.0)
            divisor = program.add("choose", empty, whole, total)  # of all branches, some systems compute each
            alike = program.constant(1.0 / len(shares))
            return [
                program.add("choose", empty, alike, program.add("divide", one, divisor)) for one in shares
            ]
        if link == "softmax":
            most = sums[0]
            for one in sums[1:]:
                most = program.add("maximum", most, one)
            powers = [program.add("exp", program.add("subtract", one, most)) for one in sums]
            total = self.dot(powers, np.ones(len(powers)))
            return [program.add("divide", one, total) for one in powers]
        chance = program.expit(sums[0])
        return (
            [chance]
            if link == "sigmoid"
            else [program.add("subtract", program.constant(1.0), chance), chance]
        )

    def _columns(self, one: Mapping[str, Any], *, gaps: bool) -> list[int]:
        """A feature's columns of the matrix."""
        program, name = self.program, one["name"]
        if one["levels"]:
            texts = sorted({*one["levels"], *one["same"]})
            place = self.place(name, texts)
            merged = [one["same"][0] if text in one["same"] else text for text in texts]
            return [
                program.take([0.0, *(float(text == level) for text in merged)], place)
                for level in one["levels"]
            ]
        if one["kind"] == "score":
            entry = self.raw_score if self.is_raw else self._log_odds()
        else:
            entry = program.add("number", column=name, kind=one["kind"])
        shifted = program.add("subtract", entry, program.constant(one["mean"]))
        scaled = program.add("divide", shifted, program.constant(one["scale"]))
        if one["kind"] == "score":
            zero = program.constant(0.0)
            return [
                scaled,
                *(program.add("maximum", program.affine(scaled, 1.0, -knot), zero) for knot in one["knots"]),
            ]
        if gaps:
            return [scaled]
        missing, zero = program.add("is_missing", scaled), program.constant(0.0)
        filled = program.add("choose", missing, zero, scaled)
        flag = program.add("choose", missing, program.constant(1.0), zero)
        return [filled, flag] if one["missing"] else [filled]

    def _log_odds(self) -> int:
        program = self.program
        chance = program.clip(self.probability, LEAST_CHANCE, 1 - LEAST_CHANCE)
        return program.add(
            "log", program.add("divide", chance, program.add("subtract", program.constant(1.0), chance))
        )

    # ------------------------------------------------------------------ curves

    def curve(self, k: int, x: int) -> int:
        """The piecewise linear function of group ``k`` at ``x``; see :mod:`fairfix.solvers.piecewise`."""
        ends = np.cumsum([0, *self.settings["knots"]])
        knots, left, at, right = (
            self.arrays[name][ends[k] : ends[k + 1]] for name in ("knots", "left", "at", "right")
        )
        program, inner = self.program, slice(None, -1)
        after = program.search(knots.tolist(), x, right=False)
        base = program.take([left[0], *right], after)
        rise = program.take([0.0, *(left[1:] - right[inner]), 0.0], after)
        origin = program.take([0.0, *knots[inner], 0.0], after)
        width = program.take([1.0, *np.diff(knots), 1.0], after)
        share = program.add("divide", program.add("subtract", x, origin), width)
        between = program.add("add", base, program.add("multiply", rise, share))
        on_knot = program.add("equal", program.take([*knots, knots[-1]], after), x)
        return program.add("choose", on_knot, program.take([*at, at[-1]], after), between)
