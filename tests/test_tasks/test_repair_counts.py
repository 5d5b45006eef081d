"""Repair from counts: the rule of the rows up to their bins, with rates that hold wherever scores lie in these."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairfix
import jsonschema
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.auditing.countfile import CountFile, count, merged
from fairfix.auditing.disclosure import SUPPRESSED, count_shown, suppressed
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data.binned import entries_of
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import count_table, read_table
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.methods import available
from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import BinnedRule, RepairedPredictor
from fairfix.noise.description import Noise, NoiseTable
from fairfix.schema import json_schema, to_dict
from fairfix.tasks.before_after import evaluate
from fairfix.tasks.bin_bounds import certified
from fairfix.tasks.repair_from_counts import fit_to_bins
from fairfix.tasks.repaired_rows import RepairedRows

from tests.data import scored
from tests.results import rendered

BINS = 1024
PLAIN = DataSpec(ColumnRoles(("race",), label="label", score="score"), thresholds=(0.5,))
WEIGHTED = replace(PLAIN, columns=replace(PLAIN.columns, weight="weight"))
SCHEMA = json_schema("repair")

METHODS: dict[str, dict[str, Any]] = {
    "ramp": {"method": "ramp"},
    "ramp with slack": {"method": "ramp", "slack": 0.1},
    "ramp, four-fifths": {"method": "ramp", "constraint": "dp.ratio>=0.8"},
    "ramp, thresholds": {"method": "ramp", "gamma": 0.0},
    "ramp, deterministic": {"method": "ramp", "gamma": 0.0, "decisions": "deterministic"},
    "ramp, covariance": {"method": "ramp", "constraint": "covariance", "slack": 0.01},
    "ramp, equal opportunity": {"method": "ramp", "constraint": "equal_opportunity"},
    "ramp, equalized odds": {"method": "ramp", "constraint": "equalized_odds", "gamma": 0.0},
    "ramp, calibrated": {"method": "ramp", "calibrate": "sigmoid"},
    "logloss": {"method": "logloss"},
    "logloss, equalized odds": {"method": "logloss", "constraint": "equalized_odds"},
    "logloss, rounded": {"method": "logloss", "decisions": "deterministic"},
    "robust": {"method": "robust"},
    "robust, identified": {"method": "robust", "assume": "class-conditional"},
}
"""What can be fitted to counts."""


def binned_scores(rows: int = 3000, seed: int = 0) -> pa.Table:
    """Return rows whose scores are middles of bins."""
    data = scored(seed, rows)
    score = (np.floor(data["score"].to_numpy() * (BINS - 1)) + 0.5) / BINS
    return data.set_column(data.column_names.index("score"), "score", pa.array(score))


counted: Any = fairfix.count


def repair(counts: Any, **asked: Any) -> Any:
    """Return a repair from counts, with an id, so that no message asks for one."""
    task: Any = fairfix.repair
    return task(counts, **{"id": "id", "method": "ramp", **asked})


def repairer_of(asked: Mapping[str, Any]) -> Repairer:
    """Return the method with its parameters."""
    return available()[asked["method"]](**{key: asked[key] for key in asked if key != "method"})


def table_of(content: CountFile) -> Table:
    """Return counts as a table."""
    return Table(content.data_spec, entries_of(content.counts(), content.data_spec), pa.table({}))


def rule_of(
    content: CountFile, asked: Mapping[str, Any], noise: Noise | None = None
) -> tuple[BinnedRule, Any]:
    """Return the rule of counts without a proof, and how much better others can be."""
    problem = RepairProblem(table_of(content), noise=noise)
    return fit_to_bins(repairer_of(asked), problem, np.random.default_rng(0))


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("name", METHODS)
def test_scores_at_middles_give_the_rule_of_the_rows(name: str, weight: str | None) -> None:
    """Counts lose nothing of scores that lie at the middles of bins: every row has the chance that rows give."""
    data, asked = binned_scores(), METHODS[name]
    data_spec = PLAIN if weight is None else WEIGHTED
    table, noise = read_table(data, data_spec, columns=()), None
    if asked["method"] == "robust":
        names = table.groups().names
        entries = 0.9 * np.eye(3) / 3 + np.full((3, 3), 0.1 / 9)
        noise = Noise(NoiseTable("table", names, names, entries, "count"))
    rows = repairer_of(asked).fit(RepairProblem(table, noise=noise), rng=np.random.default_rng(0))
    by_rows = rows.predict(table)
    if rows.gives == "value":
        by_rows = (by_rows >= 0.5).astype(float)
    by_counts, _ = rule_of(count(data, data_spec), asked, noise)

    np.testing.assert_allclose(by_counts.predict(table), by_rows, atol=1e-6)


def test_each_column_of_counts_keeps_the_slack() -> None:
    """Groups of two columns alone are held alike from counts as from rows."""
    data = binned_scores()
    data_spec = replace(PLAIN, columns=replace(PLAIN.columns, protected=("race", "job")))
    table, asked = (
        read_table(data, data_spec, columns=()),
        {"method": "ramp", "constraint": "dp[each]<=0.01"},
    )
    by_rows = repairer_of(asked).fit(RepairProblem(table), rng=np.random.default_rng(0))
    rule, lost = rule_of(count(data, data_spec), asked)

    np.testing.assert_allclose(rule.predict(table), by_rows.predict(table), atol=1e-6)
    assert "of race and of job" in lost.among


def test_the_order_of_merging_changes_nothing() -> None:
    """Counts of three hospitals make one rule, whichever comes first."""
    parts = [(str(i), count(scored(i, 700), PLAIN)) for i in range(3)]
    one, other = (rule_of(merged(order), {"method": "ramp"})[0].state() for order in (parts, parts[::-1]))

    assert one[0] == other[0]
    assert {name: a.tobytes() for name, a in one[1].items()} == {
        name: a.tobytes() for name, a in other[1].items()
    }


# ---------------------------------------------------------------------- what is certain

Floats = npt.NDArray[np.float64]


def edges(rng: np.random.Generator, rows: int) -> Floats:
    """Return scores on the edges of bins, and next to them on either side."""
    on = rng.integers(1, BINS, rows) / BINS
    return np.choose(rng.integers(0, 3, rows), [on, np.nextafter(on, 0), np.nextafter(on, 1)])


WORLDS: dict[str, tuple[Callable[[np.random.Generator, int], Any], dict[str, Any]]] = {
    "smooth": (lambda rng, rows: rng.beta(2, 3, rows), {}),
    "heavy ties": (lambda rng, rows: rng.choice([0.25, 0.5, 0.50001, 0.75], rows), {}),
    "on edges": (edges, {}),
    "one score": (lambda rng, rows: np.full(rows, 0.3), {}),
    "both ends": (lambda rng, rows: rng.choice([0.0, 1.0, 0.6], rows), {}),
    "within one bin": (lambda rng, rows: 0.5 + rng.random(rows) / BINS, {}),
    "another threshold": (lambda rng, rows: rng.random(rows), {"thresholds": (0.3333,)}),
    "percent": (lambda rng, rows: 100 * edges(rng, rows), {"score_scale": "percent"}),
    "margin": (lambda rng, rows: 2 * edges(rng, rows) - 1, {"score_scale": "margin"}),
    "logit": (lambda rng, rows: rng.normal(0, 3, rows), {"score_scale": "logit"}),
    "raw": (
        lambda rng, rows: rng.normal(100, 30, rows).round(1),
        {"score_scale": "raw", "thresholds": (100.0,)},
    ),
}


def world(name: str, rows: int, seed: int) -> tuple[pd.DataFrame, DataSpec]:
    """Return rows of groups of all sizes, the least of three rows."""
    rng = np.random.default_rng(seed)
    make, how = WORLDS[name]
    group = np.where(np.arange(rows) < 3, "tiny", rng.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1]))
    score = make(rng, rows)
    rank = np.argsort(np.argsort(score)) / rows
    label = (rng.random(rows) < 0.2 + 0.6 * rank).astype(int)
    label[:6] = [0, 1, 0, 1, 0, 1]
    frame = {"race": group, "label": label, "score": score, "weight": rng.gamma(2.0, size=rows)}
    return pd.DataFrame(frame), replace(PLAIN, **{"thresholds": (), **how}).with_threshold()


def rates_of(frame: pd.DataFrame, chance: Floats, weight: Any) -> dict[tuple[str, str], float]:
    """Return the rates of groups, from single rows."""
    out = {}
    for group in frame["race"].unique():
        for rate, label in (("selection_rate", None), ("true_positive_rate", 1), ("false_positive_rate", 0)):
            inside = frame["race"] == group
            if label is not None:
                inside &= frame["label"] == label
            if inside.any():
                out[group, rate] = float(np.average(chance[inside], weights=weight[inside]))
    return out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", WORLDS)
def test_rates_of_rows_are_those_that_are_certain(name: str, weighted: bool) -> None:
    """The shipped rule on the exact rows has the certified rates, which are points: no bin is decided in two ways."""
    frame, data_spec = world(name, 900, 1)
    data_spec = replace(data_spec, columns=replace(data_spec.columns, weight="weight" if weighted else None))
    content = count(frame, data_spec)
    constraint = "equalized_odds" if weighted else "demographic_parity"
    rule, _ = rule_of(content, {"method": "ramp", "constraint": constraint, "slack": 0.05})
    chance = rule.predict(read_table(frame, content.data_spec, columns=()))
    exact = rates_of(frame, chance, frame["weight"] if weighted else np.ones(len(frame)))
    sure = list(map(to_dict, certified(content.counts(), rule, content.data_spec, 0)))

    held = {(one["group"], rate): ends for one in sure for rate, ends in one["rates"].items()}
    assert held.keys() == exact.keys()
    for key, ends in held.items():
        assert ends["low"] <= exact[key] <= ends["high"], key
        assert ends["high"] - ends["low"] < 1e-8


def test_a_proof_on_wider_bins_is_as_certain() -> None:
    """Where the counts of the proof have other bins than those of the fit, the rule is one of the wider ones."""
    frame, data_spec = world("raw", 1500, 5)
    held = frame.iloc[700:].assign(score=lambda one: np.where(one.index == 800, 1e4, one["score"]))
    fit, proof = count(frame.iloc[:700], data_spec), count(held, data_spec)
    widths = [one.counts().grid.width for one in (fit, proof)]  # type: ignore[union-attr]  # there is a score
    held = held[held["race"] != "tiny"]
    result = repair(fit, holdout=proof)
    chance = result.repaired.predict(held.assign(id=np.arange(len(held))))["p_positive"].to_numpy()
    exact = rates_of(held, chance, np.ones(len(held)))

    assert widths[0] < widths[1] == result.to_dict()["counts"]["width"]
    for one in result.to_dict()["counts"]["certified"]:
        for rate, ends in one["rates"].items():
            assert ends["low"] <= exact[one["group"], rate] <= ends["high"]
            assert ends["high"] - ends["low"] < 1e-8


def test_a_rule_that_cuts_a_bin_is_seen() -> None:
    """With an edge inside a bin the certified rates are a range, and scores at its ends reach it."""
    frame, data_spec = world("smooth", 600, 0)
    counts = count(frame, data_spec).counts()
    levels = tuple((name,) for name in sorted(frame["race"].unique()))
    cut = 0.4 + 0.25 / BINS
    rule = BinnedRule(("race",), levels, np.array([cut]), np.tile([0.0, 1.0], (len(levels), 1)))
    floor = np.floor(frame["score"].to_numpy() * BINS) / BINS
    ends = {}
    for name, score in (("low", floor), ("high", np.nextafter(floor + 1 / BINS, 0))):
        moved = frame.assign(score=score)
        table = read_table(moved, data_spec, columns=())
        ends[name] = rates_of(moved, rule.predict(table), np.ones(len(moved)))
    wide = 0
    for one in map(to_dict, certified(counts, rule, data_spec, 0)):
        for rate, both in one["rates"].items():
            for end in ("low", "high"):
                assert both[end] == pytest.approx(ends[end][one["group"], rate], abs=2e-9)
            wide += both["high"] - both["low"] > 1e-3
    assert wide


@pytest.mark.parametrize("name", ["smooth", "heavy ties", "within one bin", "logit"])
@pytest.mark.parametrize(("gamma", "slack", "rho"), [(0.0, 0.0, 0.3), (0.05, 0.05, "joint")])
def test_exact_scores_are_better_by_no_more_than_is_said(
    name: str, gamma: float, slack: float, rho: float | str
) -> None:
    """The optimum of the rows is below the value of the shipped rule on these rows by the certified bound at most."""
    frame, data_spec = world(name, 900, 2)
    asked = {"method": "ramp", "slack": slack, "gamma": gamma, "rho": rho}
    content = count(frame, data_spec)
    table = read_table(frame, content.data_spec, columns=())
    rows = repairer_of(asked).fit(RepairProblem(table), rng=np.random.default_rng(0))
    shipped, optimum = rule_of(content, asked)

    def objective(rule: RepairedPredictor) -> float:
        q = rule.predict(table)
        return float(np.mean(gamma / 2 * q * q - table.ranking * q))

    lost = objective(shipped) - objective(rows)
    assert lost <= (optimum.bound or 0.0) + 1e-9
    if name == "within one bin" and not gamma:
        assert lost > (optimum.bound or 0.0) / 10  # bins do hide something here


# ---------------------------------------------------------------------- the proof


@pytest.mark.parametrize("weighted", [False, True])
def test_the_proof_on_counts_is_that_on_rows(weighted: bool) -> None:
    """Numbers, intervals and paired changes of one rule: those of the rows, for however few entries stand for them."""
    data = binned_scores(4000)
    content = count(data, WEIGHTED if weighted else PLAIN)
    entries, table = table_of(content), read_table(data, content.data_spec, columns=())
    rule, _ = rule_of(content, {"method": "ramp"})
    also = ("equalized_odds.difference.between_groups",)
    mine, theirs = (evaluate(RepairedRows(one, rule), Settings(), also).shown for one in (entries, table))

    assert len(entries) < len(table) == mine.rows == theirs.rows
    for one, other in zip(mine.table, theirs.table, strict=True):
        for part in ("before", "after", "change"):
            left, right = getattr(one, part), getattr(other, part)
            assert (left is None) == (right is None)
            if left is not None:
                numbers = [
                    [np.float64(getattr(value, end)) for end in ("value", "low", "high")]
                    for value in (left, right)
                ]
                np.testing.assert_allclose(*numbers, atol=1e-9, err_msg=f"{part} of {one.name}")
                assert left.reason == right.reason
    for left, right in zip(mine.people[0].groups, theirs.people[0].groups, strict=True):
        assert (left.group, left.rows) == (right.group, right.rows)
        assert (left.up, left.down) == pytest.approx((right.up, right.down))


def test_entries_are_their_counts() -> None:
    """A table of counts is counted as what it was made of, to the bit."""
    content = count(scored(0, 2000), replace(WEIGHTED, columns=replace(WEIGHTED.columns, strata=("job",))))
    counts, again = content.counts(), count_table(table_of(content)).counts

    for name in ("rows", "mass", "square_mass"):
        assert np.array_equal(getattr(counts, name), getattr(again, name))
    assert {name: one.tobytes() for name, one in counts.sums.items()} == {
        name: one.tobytes() for name, one in again.sums.items()
    }


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hospitals with rows of their own, as CSV and as Parquet, and the counts of a fit and a proof of each."""
    folder = tmp_path_factory.mktemp("hospitals")
    for i, name in enumerate(("north", "south")):
        frame = scored(i, 3000).to_pandas().assign(id=[f"{name}-{k}" for k in range(3000)])
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet")
        for part, share in (("fit", "0:0.7"), ("test", "0.7:1")):
            asked: Any = {"protected": "race", "id": "id", "part": share, "label": "label", "score": "score"}
            where = folder / f"{name}.{'csv' if i else 'parquet'}"
            counted(where, **asked).save(folder / f"{name}-{part}.counts")
    for part in ("fit", "test"):
        both = [str(folder / f"{name}-{part}.counts") for name in ("north", "south")]
        fairfix.count(both).save(folder / f"{part}.counts")
    return folder


def test_two_hospitals_repair_without_a_row(people: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line: a proof on held-out counts, an artifact that predicts, is inspected and exported."""
    fit, test, out = (str(people / name) for name in ("fit.counts", "test.counts", "out.fairfix"))
    asked = ["--method", "ramp", "--check", "dp.difference<=0.2", "--config", "none"]
    formats = [f"--out={name}={people / f'out.{name}'}" for name in ("json", "html", "markdown", "github")]
    status = run(["repair", fit, "--holdout", test, *asked, "-o", out, *formats])
    result, text = json.loads((people / "out.json").read_text()), capsys.readouterr().out

    assert status == 0
    assert "warning" not in text
    jsonschema.validate(result, SCHEMA)
    assert (result["verdict"], result["split"]["fit"] + result["split"]["holdout"]) == ("pass", 6000)
    assert "0:0.7" in result["counts"]["fit"]["share"]
    assert "held-out rows" in text.split("\n\n")[0]
    assert "<svg" in (people / "out.html").read_text(encoding="utf-8")
    rows = pd.concat([pd.read_parquet(people / f"{name}.parquet") for name in ("north", "south")])
    rows.to_parquet(people / "all.parquet")
    assert run(["predict", out, str(people / "all.parquet"), "-o", str(people / "done.parquet")]) == 0
    done = pd.read_parquet(people / "done.parquet")
    inside = done["id"].isin(_ids(people, "0.7:1"))
    assert inside.sum() == result["split"]["holdout"]
    exact = rates_of(done[inside], done["p_positive"].to_numpy()[inside], np.ones(inside.sum()))
    for one in result["counts"]["certified"]:
        for rate, ends in one["rates"].items():
            assert ends["low"] <= exact[one["group"], rate] <= ends["high"]
    assert run(["inspect", out, "--detail"]) == 0
    assert "binned_rule" in capsys.readouterr().out
    for target in ("sql", "json", "python"):
        assert run(["export", out, "--to", target, "-o", str(people / f"rule.{target}")]) == 0


def _ids(folder: Path, share: str) -> list[str]:
    """Return the ids of a share, by an audit of its own."""
    from fairfix.data.files import open_source
    from fairfix.models.shares import SharedSource

    data_spec = replace(PLAIN, columns=replace(PLAIN.columns, id="id"))
    out: list[str] = []
    for name in ("north.parquet", "south.csv"):
        source = SharedSource(open_source(str(folder / name)), data_spec, share, 0)
        for part in source.parts(["id"]):
            out += [one for batch in part.batches() for one in batch.column(0).to_pylist()]
    return out


def test_without_a_proof_nothing_passes(people: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate that holds on the counts of the fit is undecided, one that fails there fails; the answer says so."""
    base = ["repair", str(people / "fit.counts"), "--method", "ramp", "--config", "none"]
    base += ["-o", str(people / "fit-only.fairfix"), "--format", "json"]
    assert run([*base, "--check", "dp.difference<=0.9"]) == 3
    held = json.loads(capsys.readouterr().out)
    jsonschema.validate(held, SCHEMA)
    assert [check["code"] for check in held["checks"]] == ["fit_only"]
    assert run([*base, "--check", "accuracy.min>=0.99"]) == 1
    assert "holdout" not in held["proof"]
    assert held["counts"]["no_proof"]
    assert held["messages"][0]["code"] == "nothing_proven"
    answer = rendered("text", held).split("\n\n")[0]
    assert "training rows" in answer
    assert "held-out rows" not in answer


# ---------------------------------------------------------------------- shares


def test_shares_part_the_rows_by_who_they_are(people: Path) -> None:
    """Three shares hold everybody once, in CSV and in Parquet, in any order; another seed draws other ones."""
    frame = pd.read_parquet(people / "north.parquet")
    frame.sample(frac=1.0, random_state=1).to_csv(people / "mixed.csv", index=False)
    from fairfix.data.files import open_source
    from fairfix.models.shares import SharedSource

    data_spec = replace(PLAIN, columns=replace(PLAIN.columns, id="id"))

    def ids(name: str, share: str, seed: int = 0) -> list[str]:
        source = SharedSource(open_source(str(people / name)), data_spec, share, seed)
        return [
            one
            for part in source.parts(["id"])
            for batch in part.batches()
            for one in batch.column(0).to_pylist()
        ]

    parts = [ids("north.parquet", share) for share in ("0:0.3", "0.3:0.9", "0.9:1")]
    assert sorted(one for part in parts for one in part) == sorted(frame["id"])
    assert [len(part) for part in parts] == pytest.approx([900, 1800, 300], abs=100)
    assert sorted(ids("mixed.csv", "0.3:0.9")) == sorted(parts[1])
    assert sorted(ids("mixed.csv", "0.3:0.9", seed=1)) != sorted(parts[1])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "overlap": ({"proof": "0.6:1"}, "`part=0:0.7` and `part=0.6:1` overlap"),
    "other seed": ({"proof": "0.7:1", "seed": 1}, "different hashes"),
    "not a share": ({"proof": None}, "counts all rows, not a `part` of them"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rows_of_the_fit_prove_nothing(name: str, people: Path) -> None:
    """Counts that may hold rows of the fit are refused, with the way out."""
    how, words = REFUSED[name]
    seed = how.get("seed", 0)
    other = counted(people / "north.parquet", protected="race", id="id", part=how["proof"], seed=seed)
    with pytest.raises(UsageError, match=words) as error:
        repair(str(people / "north-fit.counts"), holdout=other)
    assert "part=0.7:1" in str(error.value)


def test_shares_by_values_part_rows_as_they_are_written(tmp_path: Path) -> None:
    """Rows whose scores are rounded have other hashes, so without an id the repair says that people may be in both."""
    frame = scored(0, 2000).to_pandas().drop(columns="id", errors="ignore")
    rounded = frame.assign(score=frame["score"].astype(np.float32))
    asked: Any = {"protected": "race", "label": "label", "score": "score"}
    fit = counted(frame, part="0:0.5", **asked)
    held = counted(rounded, part="0.5:1", **asked)
    notes = [note for note in repair(fit, holdout=held).outcome.messages if note.code == "held_out_unknown"]

    assert ["may be in both" in note for note in notes] == [True]


def test_counts_without_shares_are_a_matter_of_trust(people: Path) -> None:
    """The same counts are refused; others are taken, with a warning that nobody can know."""
    one, other = (count(people / f"{name}.parquet", PLAIN) for name in ("north", "south"))
    with pytest.raises(UsageError, match="identical counts"):
        repair(one, holdout=one)
    codes = [note.code for note in repair(one, holdout=other).outcome.messages]
    assert "held_out_unknown" in codes
    with pytest.raises(UsageError, match="different parts of the rows"):
        merged([("a", one), ("b", CountFile.load(people / "south-fit.counts"))])


@pytest.mark.parametrize("text", ["0.5", "a:b", "0.7:0.2", "-1:0.5", "0:1.5", "0.5:0.5"])
def test_a_share_that_is_none_is_refused(text: str, people: Path) -> None:
    with pytest.raises(UsageError, match="`part="):
        counted(people / "north.csv", protected="race", part=text)


# ---------------------------------------------------------------------- what counts cannot

VALUES = {"method": "fair-regression"}
CANNOT: dict[str, tuple[dict[str, Any], str]] = {
    "stream": ({"method": "ramp", "solver": "stream"}, "use `solver=exact`"),
    "several": ({"method": "ramp", "gamma": [0.01, 0.1]}, "`gamma` takes one value"),
    "folds": ({"method": "logloss", "learner": "linear(l2=cv)"}, "give a number"),
    "features": ({"method": "logloss", "features": "x"}, "leave out `features`"),
    "no group": ({"method": "logloss", "group": "unused"}, "use `group=used`"),
    "another column": ({"method": "ramp", "protected": "sex"}, "made with race"),
    "another label": ({"method": "ramp", "label": "other"}, "made with label"),
    "a file of rows": ({"method": "ramp", "delimiter": ";"}, "`delimiter` needs rows"),
    "held-out rows": ({"method": "ramp", "holdout": "x.csv"}, "name counts of the held-out rows"),
    "holdout": ({"method": "ramp", "holdout": 0.5}, "`holdout=0.5`"),
    "noise": ({"method": "robust"}, "`noise=FILE`"),
    "bounded group loss": (
        {**VALUES, "constraint": "bounded_group_loss<=0.2"},
        "fits a new model of the label",
    ),
    "plug-in": ({**VALUES, "solver": "plug-in"}, "use `group=used`"),
    "reduction": ({**VALUES, "solver": "reduction"}, "use `solver=closed-form`"),
    "features of values": ({**VALUES, "features": "x"}, "leave out `features`"),
    "values without the group": ({**VALUES, "group": "unused"}, "use `group=used`"),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_counts_cannot_is_refused_with_a_remedy(name: str, people: Path) -> None:
    asked, words = CANNOT[name]
    with pytest.raises(UsageError, match=words):
        repair(str(people / "north-fit.counts"), **asked)


def test_scores_of_a_model_file_are_to_be_written_first(people: Path) -> None:
    """A rule of counts asks no model; the message names the file and the way."""
    content = CountFile.load(people / "north-fit.counts")
    scored_by = replace(content, model={"file": "risk.joblib", "sha256": "0" * 64})
    with pytest.raises(UsageError, match=r"model file risk\.joblib.*write its scores to a column"):
        repair(scored_by, method="ramp")


@pytest.mark.parametrize("name", available())
def test_a_method_fits_to_counts_or_says_why_not(name: str, people: Path) -> None:
    """Each method, as it is without parameters, is one of the methods above, or names its reason."""
    reason = available()[name]().needs_rows
    if not reason:
        assert name == "fair-regression" or any(asked["method"] == name for asked in METHODS.values())
        return
    with pytest.raises(UsageError, match="cannot be fitted to counts, since it "):
        repair(str(people / "north-fit.counts"), method=name)


def test_decisions_are_no_score_bins(people: Path) -> None:
    """Counts of decisions alone, or beside a score, say what to count instead."""
    decided = pd.read_parquet(people / "north.parquet").assign(yes=lambda frame: frame["score"] > 0.5)
    for columns in (
        replace(PLAIN.columns, prediction="yes"),
        replace(PLAIN.columns, score=None, prediction="yes"),
    ):
        with pytest.raises(UsageError, match="count the data with its score"):
            repair(count(decided, replace(PLAIN, columns=columns, thresholds=())))


# ---------------------------------------------------------------------- suppression


def small() -> tuple[pd.DataFrame, DataSpec]:
    """Return rows of three towns, with a group of seven rows in one of them."""
    frame = scored(3, 2000).to_pandas().assign(town=lambda one: np.arange(len(one)) % 3)
    frame.loc[:6, ["race", "town"]] = ["few", 0]
    data_spec = replace(PLAIN, columns=replace(PLAIN.columns, protected=("race", "town")))
    return frame, data_spec


@pytest.mark.parametrize("size", [1, 7, 19])
@pytest.mark.parametrize("scale", ["probability", "raw"])
def test_a_file_is_the_same_whatever_the_rows_of_a_small_cell_are(
    size: int, scale: Any, tmp_path: Path
) -> None:
    """Its bytes do not depend on size, labels and scores of a cell of fewer rows than the limit."""
    frame, data_spec = small()
    data_spec = replace(data_spec, score_scale=scale, thresholds=(0.5,))
    frame["race"] = frame["race"].replace("few", "none")
    files = []
    for many, score in ((5, 0.5), (size, 0.001)):
        other = frame.copy()
        other.loc[: many - 1, ["race", "town", "label", "score"]] = ["few", 0, 1, score]
        other = pd.concat([other.iloc[:many], frame.iloc[19:]], ignore_index=True)
        content = count_shown(other, data_spec, 20)
        path = tmp_path / f"{many}.counts"
        content.save(path)
        files.append(path.read_bytes())
        counts = content.counts()
        hidden = counts.excluded[SUPPRESSED]
        assert "few" not in {race for race, _ in counts.cells}
        assert hidden == 19
        assert counts.read == counts.used + hidden
        assert counts.used == len(other) - many
        assert len(content.pieces) == 1
    assert files[0] == files[1]


def test_score_bins_do_not_tell_of_scores_that_are_left_out() -> None:
    """Bins that follow the data end with the rows that are left, whose places in them stay as they were."""
    frame, data_spec = small()
    below, within, above = -900.0, 0.5, 8000.0
    data_spec = replace(data_spec, score_scale="raw", thresholds=(below, within, above))
    frame.loc[:1, "score"] = [-1000.0, 12345.0]
    whole = count(frame, data_spec)
    content = suppressed(whole, [data_spec.columns.protected], 20)
    counts, before = content.counts(), whole.counts()
    shown = frame["race"] + frame["town"].astype(str)
    score = frame["score"][shown.isin({race + town for race, town in counts.cells})].to_numpy()
    assert counts.grid is not None
    assert before.grid is not None

    assert before.grid.edges[0] <= -1000 < 12345 <= before.grid.edges[-1]
    assert counts.grid.edges[0] > score.min() - 2 * counts.grid.width
    assert counts.grid.edges[-1] < score.max() + 2 * counts.grid.width
    many = np.bincount(counts.grid.index(score), minlength=counts.grid.size)
    np.testing.assert_array_equal(counts.rows.sum(axis=(0, 1)), many)


def test_a_repair_from_suppressed_counts_allows_for_the_rows_left_out(tmp_path: Path) -> None:
    """It says how many are hidden, and rates of all rows of a group lie between the certified ends."""
    frame, _ = small()
    asked: Any = {
        "protected": ["race", "town"],
        "label": "label",
        "score": "score",
        "bands": {"town": "values"},
    }
    counted(frame, suppress_below=20, **asked).save(tmp_path / "x.counts")
    assert "few" not in json.dumps(CountFile.load(tmp_path / "x.counts").facts())
    result = repair(str(tmp_path / "x.counts"), protected="race", unseen="abstain")
    hidden = result.to_dict()["counts"]["fit"]["left_out"]
    codes = [note.code for note in result.outcome.messages]
    done = result.repaired.predict(frame.assign(id=np.arange(len(frame)), town=frame["town"].astype(str)))
    exact = rates_of(done, done["p_positive"].to_numpy(), np.ones(len(done)))

    assert "suppressed" in codes
    for one in result.to_dict()["counts"]["certified"]:
        for rate, ends in one["rates"].items():
            assert ends["low"] <= exact[one["group"], rate] <= ends["high"]
            assert ends["high"] - ends["low"] > 1e-3
    assert hidden == 19
