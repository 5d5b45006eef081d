"""The peers of the ramp behind one form: rows in, a rule out that gives probabilities of a positive decision.

Rules that draw are compared by what they do on average: Fairlearn's and error-parity's ``predict`` draw, so the
probabilities that they draw with are read from the fitted objects. A peer that is not installed is left out and
named.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem
from sklearn.base import BaseEstimator, ClassifierMixin

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Rule = Callable[[Floats, Ints], Floats]
"""Scores in [0, 1] and group codes to probabilities of a positive decision."""


@dataclass(frozen=True)
class Rows:
    """Scores in [0, 1], labels 0/1 and group codes 0, 1, ..., shape (n,) each; weights or None."""

    score: Floats
    label: Ints
    group: Ints
    weight: Floats | None = None

    def take(self, rows: Ints) -> Rows:
        """Return the rows of the given numbers; weights are not taken along."""
        return Rows(self.score[rows], self.label[rows], self.group[rows])

    def table(self) -> Table:
        """Return the rows as fairfix reads them."""
        names = np.array([f"g{k}" for k in range(int(self.group.max()) + 1)])
        columns = {
            "group": pa.DictionaryArray.from_arrays(self.group.astype(np.int8), names),
            "label": pa.array(self.label),
            "score": pa.array(self.score),
        }
        if self.weight is not None:
            columns["weight"] = pa.array(self.weight)
        roles = ColumnRoles(
            ("group",), label="label", score="score", weight="weight" if "weight" in columns else None
        )
        return read_table(pa.table(columns), DataSpec(roles, thresholds=(0.5,)))

    def accuracy(self, chance: Floats) -> float:
        """Return the expected share of right decisions."""
        return float(np.mean(np.where(self.label == 1, chance, 1.0 - chance)))

    def gap(self, chance: Floats) -> float:
        """Return the largest difference of two groups' expected selection rates."""
        return _spread(self.group, chance)

    def odds_gap(self, chance: Floats) -> float:
        """Return the larger of the differences of true and of false positive rates."""
        kept = (self.label == value for value in (0, 1))
        return max(_spread(self.group[rows], chance[rows]) for rows in kept)


def _spread(group: Ints, chance: Floats) -> float:
    # a mean adds in pairs: the running sums of bincount are off by 1e-12 at a million rows, more than what is measured
    rates = [float(np.mean(chance[group == k])) for k in range(int(group.max()) + 1)]
    return max(rates) - min(rates)


def joined(parts: Sequence[Rows]) -> Rows:
    """Return all rows of the parts, without weights."""
    return Rows(
        np.concatenate([part.score for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.group for part in parts]),
    )


def repaired(repairer: Repairer, fit: Table, target: Table) -> Floats:
    """Return fairfix's probabilities on the target after a fit."""
    predictor = repairer.fit(RepairProblem(fit), rng=np.random.default_rng(0))
    return predictor.predict(target)


# --- the peers -----------------------------------------------------------------------------------------


class GivenScores(ClassifierMixin, BaseEstimator):
    """What Fairlearn wants as a trained model: the only column is the probability."""

    def fit(self, X: Floats, y: Ints) -> GivenScores:
        """Learn nothing; scikit-learn takes what has no ``fit`` for no model."""
        return self

    def predict_proba(self, X: Floats) -> Floats:
        """Return both columns, shape (n, 2)."""
        return np.column_stack([1.0 - X[:, 0], X[:, 0]])

    def predict(self, X: Floats) -> Ints:
        """Return the decisions at 0.5."""
        return (X[:, 0] >= 0.5).astype(np.int64)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def fairlearn(
    rows: Rows,
    constraint: str = "demographic_parity",
    *,
    method: str = "predict_proba",
    grid_size: int = 1000,
) -> Rule:
    """Fit Fairlearn's ThresholdOptimizer for accuracy on probabilities or, by ``method``, on hard decisions."""
    optimizer = importlib.import_module("fairlearn.postprocessing").ThresholdOptimizer(
        estimator=GivenScores(),
        constraints=constraint,
        objective="accuracy_score",
        grid_size=grid_size,
        prefit=True,
        predict_method=method,
    )
    optimizer.fit(rows.score[:, None], rows.label, sensitive_features=rows.group)

    def rule(score: Floats, group: Ints) -> Floats:
        # the public ``predict`` draws from exactly these probabilities
        chance: Floats = optimizer._pmf_predict(score[:, None], sensitive_features=group)[:, 1]
        return chance

    return rule


def fairlearn_hard(rows: Rows, constraint: str = "demographic_parity") -> Rule:
    """Fit Fairlearn's ThresholdOptimizer on decisions at 0.5."""
    return fairlearn(rows, constraint, method="predict")


def error_parity(rows: Rows, constraint: str = "demographic_parity") -> Rule:
    """Fit error-parity's RelaxedThresholdOptimizer with tolerance 0 and its default of 1,000 ROC ticks."""
    optimizer = importlib.import_module("error_parity").RelaxedThresholdOptimizer(
        predictor=lambda X: X[:, 0], constraint=constraint, tolerance=0.0
    )
    optimizer.fit(rows.score[:, None], rows.label, group=rows.group)
    parts = optimizer._realized_classifier.group_to_clf
    coins = {k: float(point[0]) for k, point in enumerate(optimizer.groupwise_roc_points)}

    def rule(score: Floats, group: Ints) -> Floats:
        chance = np.empty(score.size)
        for k, part in parts.items():
            chance[group == k] = _mixed(part, score[group == k], coins[k])
        return chance

    return rule


def _mixed(part: Any, score: Floats, coin: float) -> Floats:
    """Return what a mixture of thresholds, and of a coin without a threshold, decides on average."""
    members = getattr(part, "classifiers", [part])
    shares = getattr(part, "probabilities", [1.0])
    chance = np.zeros(score.size)
    for share, member in zip(shares, members, strict=True):
        cut = getattr(member, "threshold", None)
        chance += share * (coin if cut is None else (score >= cut))
    return chance


def holisticai_ramp(gamma: float) -> Any:
    """Return holisticai's solver of the same ramp, with its defaults; ``fit`` and ``predict`` take scores 2p - 1."""
    return _holisticai()(gamma=gamma)


@cache
def _holisticai() -> Any:
    home = "holisticai.bias.mitigation.postprocessing.ml_debiaser.randomized_threshold.algorithm"
    return importlib.import_module(home).RandomizedThresholdAlgorithm


def _load_error_parity() -> Any:
    solver = importlib.import_module("ecos")  # its only solver, which cvxpy no longer brings along
    logging.getLogger("error_parity").setLevel(logging.ERROR)
    importlib.import_module("error_parity")
    return solver


NEEDED: Mapping[str, Callable[[], Any]] = {
    "fairlearn": lambda: importlib.import_module("fairlearn.postprocessing"),
    "error-parity": _load_error_parity,
    "holisticai": _holisticai,
}
"""Peer to what has to be imported, so that an import is never in a measured time."""


def installed(names: Sequence[str]) -> tuple[list[str], str]:
    """Return which of the peers can be imported, and a line on versions and on what is missing."""
    found, said = [], []
    for name in names:
        try:
            NEEDED[name]()
        except ImportError as error:
            said.append(f"{name} cannot be used ({error}): left out")
        else:
            found.append(name)
            said.append(f"{name} {version(name)}")
    return found, "Peers: " + "; ".join(said) + "."
