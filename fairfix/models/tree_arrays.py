"""Trees of the libraries that grow them as the arrays of a :class:`~fairfix.models.members.TreesMember`.

What is read is what a fitted model says of itself: attributes of scikit-learn's trees, the text that LightGBM saves,
and the JSON that XGBoost saves. A node sends a row left where ``x <= threshold`` in 64 bits. XGBoost and scikit-learn,
but for its boosting of histograms, compare numbers of 32 bits; their thresholds are moved to the last number of 64 bits
that rounds to the same side, so that every row goes where the library sends it.

A column without gaps in the fit says nothing of gaps: there scikit-learn's and LightGBM's trees take one as the mean,
which is 0 in a matrix of features.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.codec import Arrays
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.models.members import NODES, Link, TreesMember

BEYOND = 2.0**128
"""The number after the largest of 32 bits."""


Nodes = dict[str, npt.NDArray[Any]]
"""Nodes of a tree by the names of ``NODES``; children are numbers of nodes, and a leaf is its own."""


def _grown(
    leaf: Bools, feature: Any, threshold: Floats, left: Any, right: Any, value: Floats, missing_left: Bools
) -> Nodes:
    """Return a tree as a library has it, whose leaves have a value alone."""
    own = np.arange(leaf.size, dtype=np.int64)
    return {
        "feature": np.where(leaf, 0, feature),
        "threshold": np.where(leaf, 0.0, threshold),
        "left": np.where(leaf, own, left),
        "right": np.where(leaf, own, right),
        "value": value,
        "missing_left": missing_left,
    }


def joined(
    trees: Sequence[Nodes], classes: Sequence[int], baseline: Iterable[float], features: int, link: Link
) -> TreesMember:
    """Return the member of trees, which are added to the sums ``classes`` that begin at ``baseline``."""
    nodes, roots = _end_to_end(trees)
    starts = np.array([*baseline], dtype=np.float64)
    return TreesMember(nodes, roots, np.array(classes, dtype=np.int64), starts, features, link)


def _end_to_end(parts: Sequence[Arrays]) -> tuple[Nodes, Ints]:
    """Return the nodes of several parts, one part after the other, and the number of the first node of each."""
    sizes = np.array([one["value"].size for one in parts], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    nodes: Nodes = {name: np.concatenate([one[name] for one in parts]) for name in NODES}
    for side in ("left", "right"):
        nodes[side] = nodes[side] + np.repeat(first, sizes)
    return {name: nodes[name].astype(part.dtype) for name, part in NODES.items()}, first


def side_by_side(members: Sequence[TreesMember]) -> TreesMember:
    """Return the member whose sums are those of others, of one sum each, as shares that are made to add up to 1."""
    nodes, before = _end_to_end([one.nodes for one in members])
    return TreesMember(
        nodes,
        np.concatenate([one.roots + first for one, first in zip(members, before, strict=True)]),
        np.repeat(np.arange(len(members)), [one.roots.size for one in members]).astype(np.int64),
        np.concatenate([one.baseline for one in members]),
        members[0].features,
        "shares",
    )


def of_32_bits(threshold: Floats, *, below: bool = False) -> Floats:
    """Return ``t`` such that ``x <= t`` in 64 bits where ``x``, rounded to 32 bits, is at most the threshold.

    ``below``: where it is below the threshold.
    """
    with np.errstate(over="ignore"):
        last = threshold.astype(np.float32)
    passed = last >= threshold if below else last > threshold
    last = np.where(passed, np.nextafter(last, np.float32(-np.inf)), last)
    following = np.nextafter(last, np.float32(np.inf)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        middle = (last.astype(np.float64) + np.where(np.isinf(following), BEYOND, following)) / 2.0
    even = last.view(np.uint32) % 2 == 0  # a number halfway between two is rounded to the even one
    return np.where(np.isfinite(threshold), np.where(even, middle, np.nextafter(middle, -np.inf)), threshold)


# ---------------------------------------------------------------------- scikit-learn


def of_histograms(model: Any, link: Link) -> TreesMember:
    """Return the arrays of a fitted ``HistGradientBoosting`` model that was fitted without categorical columns."""
    stages = [(k, tree.nodes) for stage in model._predictors for k, tree in enumerate(stage)]
    trees = []
    for _, nodes in stages:
        leaf, gaps = nodes["is_leaf"].astype(bool), nodes["missing_go_to_left"].astype(bool)
        splits = nodes["feature_idx"], nodes["num_threshold"], nodes["left"], nodes["right"]
        trees.append(_grown(leaf, *splits, nodes["value"], gaps))
    baseline = np.ravel(model._baseline_prediction).astype(np.float64)
    return joined(trees, [k for k, _ in stages], baseline, int(model.n_features_in_), link)


def of_cart(
    grown: Sequence[tuple[Any, int | None]], weights: Floats, baseline: Floats, gaps: Bools, link: Link
) -> TreesMember:
    """Return the arrays of scikit-learn's trees of one kind: a single one, or those of a forest or of boosting.

    Parameters
    ----------
    grown
        For each tree its ``tree_``, with the sum that its values are added to; None where it has a value for each sum.
    weights
        What the values of each tree are multiplied with, shape (T,).
    baseline
        What the sums begin with, shape (m,).
    gaps
        Which columns had gaps in the fit, shape (d,).
    """
    trees, classes = [], []
    for (tree, sum_), weight in zip(grown, weights, strict=True):
        leaf = tree.children_left < 0
        feature, threshold = np.where(leaf, 0, tree.feature), np.where(leaf, 0.0, tree.threshold)
        cut, sides = of_32_bits(threshold), (tree.children_left, tree.children_right)
        to_left = np.where(gaps[feature], tree.missing_go_to_left.astype(bool), cut >= 0.0)
        own_sums = range(baseline.size) if sum_ is None else (sum_,)
        for k in own_sums:
            # one number for a node of a regressor; a share for each class of a classifier, of which the last is enough
            # where one chance is asked for
            column = tree.value[:, 0, -1 if baseline.size == 1 or sum_ is not None else k]
            trees.append(_grown(leaf, feature, cut, *sides, weight * column, to_left))
            classes.append(k)
    return joined(trees, classes, baseline, gaps.size, link)


# ---------------------------------------------------------------------- LightGBM

CATEGORICAL, DEFAULT_LEFT, KIND_OF_GAP, IS_NAN = 1, 2, 12, 8
"""Bits of LightGBM's ``decision_type``: a split by categories, where a gap goes, and what is a gap."""


NEXT_TO_NOTHING = float(np.float32(1e-35))
"""Largest distance from 0 that LightGBM takes for 0."""


def of_lightgbm(text: str, links: Sequence[Link]) -> list[TreesMember]:
    """Return the arrays of a saved LightGBM model with each of some links; none where its trees are of other kinds."""
    head, *blocks = text.split("\nTree=")
    settings = dict(line.partition("=")[::2] for line in head.splitlines())
    features, many = int(settings["max_feature_idx"]) + 1, int(settings["num_tree_per_iteration"])
    share = many / len(blocks) if "average_output" in settings else 1.0
    trees = [_lightgbm_tree(block.partition("\n\n")[0], share) for block in blocks]
    grown = [tree for tree in trees if tree is not None]
    if len(grown) < len(trees):
        return []
    classes = [i % many for i in range(len(grown))]
    return [joined(grown, classes, np.zeros(many), features, link) for link in links]


def _lightgbm_tree(block: str, share: float) -> Nodes | None:
    """Return one tree of the text, its values times a share; None where it has categorical splits or linear leaves."""
    lines = dict(line.partition("=")[::2] for line in block.splitlines())

    def entries(name: str, kind: Any) -> npt.NDArray[Any]:
        return np.array(lines.get(name, "").split(), dtype=kind)

    leaves, how = int(lines["num_leaves"]), entries("decision_type", np.int64)
    if lines.get("is_linear", "0") != "0" or (how & CATEGORICAL).any():
        return None
    inner = leaves - 1
    own = np.arange(inner, inner + leaves)
    threshold = np.append(entries("threshold", np.float64)[:inner], np.zeros(leaves))
    # a leaf is written as the number below 0 that is its own, counted from -1
    left, right = (
        np.append(np.where(side < 0, inner - 1 - side, side), own)
        for side in (entries(f"{name}_child", np.int64)[:inner] for name in ("left", "right"))
    )
    # where what is next to nothing is taken for 0, only what is less than that is below a threshold next to nothing
    tiny = np.abs(threshold) <= NEXT_TO_NOTHING
    least = np.where(threshold < 0.0, np.nextafter(-NEXT_TO_NOTHING, -np.inf), NEXT_TO_NOTHING)
    by_gap = np.append((how & KIND_OF_GAP) == IS_NAN, np.zeros(leaves, dtype=bool))[: inner + leaves]
    default = np.append((how & DEFAULT_LEFT) > 0, np.zeros(leaves, dtype=bool))[: inner + leaves]
    return {
        "feature": np.append(entries("split_feature", np.int64)[:inner], np.zeros(leaves, dtype=np.int64)),
        "threshold": np.where(tiny, least, threshold),
        "left": left,
        "right": right,
        "value": np.append(np.zeros(inner), share * entries("leaf_value", np.float64)),
        "missing_left": np.where(by_gap, default, threshold >= 0.0),
    }


# ---------------------------------------------------------------------- XGBoost


def of_xgboost(booster: Any, X: Floats, margin: npt.NDArray[Any], links: Sequence[Link]) -> list[TreesMember]:
    """Return the arrays of a fitted booster with each of some links; none where its trees are of other kinds.

    ``margin``: its sums for rows ``X``, shape (n,) or (n, m), from which it is seen where the sums begin: versions of
    XGBoost save that in different units.
    """
    boosted = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    share = boosted.get("weight_drop")
    boosted = boosted.get("gbtree", boosted)  # where trees are dropped, they are one level down
    if "model" not in boosted or "trees" not in boosted["model"]:
        return []
    saved, classes = boosted["model"]["trees"], boosted["model"]["tree_info"]
    shares = np.ones(len(saved)) if share is None else np.array(share, dtype=np.float64)
    trees = []
    for one, own_share in zip(saved, shares, strict=True):
        if any(one.get("split_type", ())) or int(one["tree_param"].get("size_leaf_vector", 1)) > 1:
            return []
        left, right = (np.array(one[f"{side}_children"], dtype=np.int64) for side in ("left", "right"))
        leaf, gaps = left < 0, np.array(one["default_left"], dtype=bool)
        number = np.array(one["split_conditions"], dtype=np.float32).astype(np.float64)
        value, cut = np.where(leaf, own_share * number, 0.0), of_32_bits(number, below=True)
        trees.append(_grown(leaf, one["split_indices"], cut, left, right, value, gaps))
    sums = margin.reshape(len(X), -1).astype(np.float64)
    plain = joined(trees, classes, np.zeros(sums.shape[1]), X.shape[1], "identity")
    baseline = (sums - plain.sums(X)).mean(axis=0)
    return [joined(trees, classes, baseline, X.shape[1], link) for link in links]
