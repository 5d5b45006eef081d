"""Limits of true groups where recorded groups are small or all alike: laws of the imagined row, coverage and price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import scan
from fairfix.noise.added_rows import LOWER, UPPER, inverted_with_row, level_with_row, with_ends, with_row
from fairfix.noise.bounds import table_bounds, tv_bounds
from fairfix.noise.comparisons import comparisons_of
from fairfix.noise.confusion_matrix_inversion import invert
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.epsilon import End, sensitivity_ends
from fairfix.noise.observed_groups import Recorded, recorded_groups
from fairfix.noise.randomized_rule_bounds import ball_bounds, level_bounds
from fairfix.noise.rates import CELLS_OF_LABEL, LABELS, RATIOS, Floats
from fairfix.noise.true_groups import TrueGroups
from fairfix.schema.audit import Bound
from scipy import stats

NAMES = ("a", "b", "c")


def seen(counts: Floats, **more: Floats) -> Recorded:
    """Return recorded groups of counted cells, shape (K, 4)."""
    rows = float(counts.sum())
    return Recorded("group", NAMES[: len(counts)], counts / rows, rows, dict(RATIOS), **more)


def table_of(q: Floats, *, by_label: bool = False, form: str = "count") -> NoiseTable:
    """Return what a survey of joint masses, shape (J, K, 4), tells of true and recorded groups."""
    entries = np.stack([q[..., own].sum(-1) for own in CELLS_OF_LABEL]) if by_label else q.sum(-1)
    names = NAMES[: len(q)]
    return NoiseTable("survey", names, names, entries.astype(np.float64), form)  # type: ignore[arg-type]  # a form


def every_bound(true: TrueGroups, level: str) -> Iterator[tuple[str, str, int, Bound]]:
    """Yield kind, name, group and bound of all rates and comparisons."""
    bounds = true.bounds[level]
    for name in RATIOS:
        yield from (("rate", name, j, bound) for j, bound in enumerate(bounds.of_groups(name)))
    for kind, name, rates in comparisons_of(RATIOS):
        yield kind, name, -1, bounds.of_comparison(kind, rates)


# ---------------------------------------------------------------------- one more row


@pytest.mark.parametrize("rows", [(12, 0), (0, 5), (40, 1), (30, 20)])
def test_without_noise_limits_are_those_of_clopper_and_pearson(rows: tuple[int, int]) -> None:
    """Each rate by itself, for recorded groups that are known to be the true ones (radius 0)."""
    yes, no = rows
    counts = np.array([[yes, no, 7, 3], [300, 200, 250, 250]], dtype=np.float64)
    true = TrueGroups(seen(counts), Noise(radii={"a": 0.0, "b": 0.0}), replicates=20_000)
    for name, (a, b) in {
        "true_positive_rate": (yes, no),
        "selection_rate": (yes + 7, no + 3),
        "positive_predictive_value": (yes, 7),
        "accuracy": (yes + 3, no + 7),
    }.items():
        bound = next(true.bounds["N0"].of_groups(name))
        low = stats.beta.ppf(0.025, a, b + 1) if a else 0.0
        high = stats.beta.ppf(0.975, a + 1, b) if b else 1.0
        assert (bound.outer_low, bound.outer_high) == pytest.approx((low, high), abs=0.01)


def test_few_rows_of_large_weight_are_few() -> None:
    """Weights of another group do not make rows of this one."""
    groups = np.repeat(["a", "b"], [1000, 10])
    rng = np.random.default_rng(0)
    columns = {
        "group": groups,
        "yes": np.append(rng.integers(0, 2, 1000), np.ones(10, dtype=np.int64)),
        "w": np.where(groups == "b", 20.0, 1.0),
    }
    data_spec = DataSpec(ColumnRoles(("group",), prediction="yes", weight="w"))
    scanned = scan(open_source(pa.table(columns)), data_spec)
    data = recorded_groups(scanned.counts, scanned.data_spec, ("group",))
    bound = list(
        TrueGroups(data, Noise(radii={"a": 0.0, "b": 0.0})).bounds["N0"].of_groups("selection_rate")
    )[1]
    assert bound.outer_low == pytest.approx(stats.beta.ppf(0.025, 10, 1), abs=0.03)


def a_world(rng: np.random.Generator, *, by_label: bool) -> tuple[Floats, Floats, Floats]:
    """Return cells, imagined rows, and a table whose columns hold both."""
    q = rng.dirichlet(np.full(36, 0.7)).reshape(3, 3, 4) * (np.eye(3) * 8 + 1)[:, :, None]
    cells = q.sum(0) / q.sum()
    columns = np.stack([cells[:, own].sum(1) for own in CELLS_OF_LABEL]) if by_label else cells.sum(1)
    imagined = rng.exponential(0.05, columns.shape)
    share = np.stack([q[..., own].sum(-1) for own in CELLS_OF_LABEL]) if by_label else q.sum(-1)
    return cells, imagined, share * ((columns + imagined) / share.sum(-2))[..., None, :]


def anywhere(rng: np.random.Generator, imagined: Floats) -> Floats:
    """Return imagined rows, each in a cell that it may be in, shape (3, 4)."""
    out = np.zeros((3, 4))
    if imagined.ndim == 1:
        out[np.arange(3), rng.integers(0, 4, 3)] = imagined
    else:
        for own, mass in zip(CELLS_OF_LABEL, imagined, strict=True):
            out[np.arange(3), rng.choice(own, 3)] += mass
    return out


@pytest.mark.slow
@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("name", RATIOS)
def test_no_other_place_of_the_row_is_worse(name: str, by_label: bool) -> None:
    """Ends with the imagined rows where they are taken to be worst, against ends with them anywhere else."""
    rng = np.random.default_rng([3, by_label, len(name)])
    ratio, said = RATIOS[name], 0
    for _ in range(5):
        cells, imagined, table = a_world(rng, by_label=by_label)
        radii, inverse = rng.uniform(0, 0.3, 3), invert(cells, table, by_label=by_label)
        for end in (LOWER, UPPER):
            ends = [End(ratio, j, 1.0 - 2.0 * end) for j in range(3)]
            taken = with_row(cells, imagined, ratio, end, by_label=by_label)
            n4 = inverted_with_row(inverse.masses, inverse.weights, imagined, ratio, end, by_label=by_label)
            n3 = sensitivity_ends(cells, table, 0.3, ends, imagined)
            for _ in range(5):
                other = cells + anywhere(rng, imagined)
                masses = invert(other, table, by_label=by_label).masses
                sound = (
                    np.minimum(*ratio.masses(masses)) > 0
                )  # a rate outside [0, 1] is moved to what a table allows
                sound &= np.minimum(*ratio.masses(n4)) > 0
                for ours, found in (
                    (table_bounds(taken, table, ratio)[end], table_bounds(other, table, ratio)[end]),
                    (tv_bounds(taken, radii, ratio)[end], tv_bounds(other, radii, ratio)[end]),
                    (ratio.of(n4)[sound], ratio.of(masses)[sound]),
                    (n3, sensitivity_ends(other, table, 0.3, ends)),
                ):
                    off = (ours - found) if end == LOWER else (found - ours)
                    assert not (off > 1e-6).any()
                    said += int((off < -1e-6).sum())
    assert said > 50


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("name", LABELS)
def test_nobody_at_another_level_of_the_decision_is_worse(name: str, by_label: bool) -> None:
    rng = np.random.default_rng([4, by_label, len(name)])
    for _ in range(10):
        cells, imagined, table = a_world(rng, by_label=by_label)
        part = rng.random((3, 3, 1))
        levels = (
            np.stack([cells[:, 2:].sum(1), cells[:, :2].sum(1)], -1)[:, None]
            * part
            / part.sum(1, keepdims=True)
        )
        accepted, radii = rng.random((3, 3)), rng.uniform(0, 0.3, 3)
        own = with_ends(accepted)
        for end in (LOWER, UPPER):
            taken = level_with_row(levels, imagined, name, end, by_label=by_label)
            for _ in range(5):
                other = np.concatenate([levels, np.zeros((3, 2, 2))], 1)
                for label in (0, 1) if by_label else (int(rng.integers(2)),):
                    mass = imagined[label] if by_label else imagined
                    other[np.arange(3), rng.integers(0, 5, 3), label] += mass
                for ours, found in (
                    (level_bounds(taken, table, own, name)[end], level_bounds(other, table, own, name)[end]),
                    (ball_bounds(taken, radii, own, name)[end], ball_bounds(other, radii, own, name)[end]),
                ):
                    assert not (((ours - found) if end == LOWER else (found - ours)) > 1e-9).any()


# ---------------------------------------------------------------------- coverage and price


@pytest.mark.slow
@pytest.mark.parametrize("level", ["N0", "N1", "N2", "N4"])
def test_of_large_groups_limits_are_hardly_wider_than_a_bootstrap(level: str) -> None:
    """Groups of 500 to 5,000 rows with rates of .3 to .7, and a table that is known: against multinomial resamples."""
    ours, theirs = [], []
    for world in range(8):
        rng = np.random.default_rng([12, world])
        sizes, parts = rng.uniform(500, 5000, 2), rng.uniform(0.3, 0.7, (2, 3))
        yes = np.stack([parts[:, 1], 1 - parts[:, 1], parts[:, 2], 1 - parts[:, 2]], -1)
        label = np.stack([parts[:, 0], parts[:, 0], 1 - parts[:, 0], 1 - parts[:, 0]], -1)
        q = (sizes / sizes.sum())[:, None, None] * np.array([[0.95, 0.05], [0.1, 0.9]])[:, :, None]
        q = q * (yes * label)[:, None]
        rows = round(sizes.sum())
        counts = rng.multinomial(rows, q.ravel()).reshape(q.shape).sum(0).astype(np.float64)
        table, radii = table_of(q, by_label=level == "N2", form="joint"), np.array([0.05, 0.1])
        noise = Noise(
            replace(table, keep="noisy-given-true"), assume="class-conditional" if level == "N4" else ""
        )
        if level == "N0":
            noise = Noise(radii=dict(zip(NAMES, radii, strict=False)))
        true = TrueGroups(seen(counts), noise)
        again = rng.multinomial(rows, (counts / rows).ravel(), 1000).reshape(1000, 2, 4) / rows
        for kind, name, group, bound in every_bound(true, level):
            if kind != "rate":
                continue
            ratio = RATIOS[name]
            if level == "N0":
                low, high = tv_bounds(again, radii, ratio)
            elif level == "N4":
                low = high = ratio.of(invert(again, noise.table.conditional(again.sum(-1))).masses)
            else:
                tables = noise.table.tables(true.evidence.masses(again))[0]
                low, high = table_bounds(again, tables, ratio)
            ours.append(bound.outer_high - bound.outer_low)
            theirs.append(np.quantile(high[:, group], 0.975) - np.quantile(low[:, group], 0.025))
    assert np.median(np.array(ours) / np.array(theirs)) == pytest.approx(1.0, abs=0.05)
