"""docs/coming-from.md is right: where a peer is installed, each pair of names of the page is the same number."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import fairfix
import pandas as pd
import pytest
from fairfix.auditing.checks import named

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")


def pairs(heading: str) -> list[tuple[str, str]]:
    """Return the rows of the page's table whose first heading this is, without backquotes."""
    (table,) = re.findall(rf"^\| {re.escape(heading)} \|.*\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [tuple(re.findall(r"`([^`]+)`", row)) for row in table.splitlines()]


@cache
def rows() -> pd.DataFrame:
    """The sample, with decisions; a race is a text, so that every peer takes it."""
    data = pd.read_parquet(ROOT / "sample_data" / "loans.parquet")
    text = {name: data[name].astype(object) for name in ("race", "sex", "product")}
    return data.assign(decision=(data["score"] >= 0.5).astype(int), **text)


@cache
def block(protected: str) -> Any:
    """What fairfix says of a column; the strata are products, and the reference is White or male."""
    reference = {"race": "White", "sex": "male"}[protected]
    audit = fairfix.audit(
        rows(), protected=protected, label="label", prediction="decision", strata="product",
        reference={protected: reference},
    )  # fmt: skip
    return audit.content.block(protected)


def ours(name: str, protected: str) -> float:
    """Return a comparison of fairfix by the name that a check has for it."""
    return float(block(protected).by_id[named(name).id].value)


def inverse_below_1(value: float) -> float:
    return min(value, 1 / value)


@pytest.mark.slow
@pytest.mark.parametrize(("theirs", "name"), pairs("`fairlearn.metrics`"))
def test_fairlearn(theirs: str, name: str) -> None:
    """Functions of the page, called as it says, over five groups."""
    metrics = pytest.importorskip("fairlearn.metrics", reason="the extra 'dev' is not installed")
    data = rows()
    given = {"y_true": data["label"], "y_pred": data["decision"], "sensitive_features": data["race"]}
    scope = {"call": lambda function, **more: function(**given, **more), **vars(metrics)}
    code = (
        theirs.replace("control_features=...", "control_features=product") if "(" in theirs else f"{theirs}()"
    )
    code = re.sub(r"^(\w+)\(", r"call(\1, ", code)
    value = eval(code, {**scope, "product": data["product"]})  # noqa: S307  the page is ours

    assert ours(name, "race") == pytest.approx(value, abs=1e-12)


@cache
def of_aif360() -> Any:
    """The metric object of AIF360 for women against men, who are privileged."""
    datasets = pytest.importorskip("aif360.datasets", reason="a peer that is in no extra")
    metrics = pytest.importorskip("aif360.metrics", reason="a peer that is in no extra")
    data = rows()[["label"]].assign(male=(rows()["sex"] == "male").astype(float))
    truth = datasets.BinaryLabelDataset(df=data, label_names=["label"], protected_attribute_names=["male"])
    decided = truth.copy()
    decided.labels = rows()["decision"].to_numpy(float).reshape(-1, 1)
    return metrics.ClassificationMetric(
        truth, decided, unprivileged_groups=[{"male": 0}], privileged_groups=[{"male": 1}]
    )


@pytest.mark.parametrize(("theirs", "name"), pairs("`aif360.metrics.ClassificationMetric`"))
def test_aif360(theirs: str, name: str) -> None:
    """Methods of the page, of two groups, up to the sign of a difference and the inverse of a ratio."""
    value = getattr(of_aif360(), theirs.removesuffix("()"))()
    value = inverse_below_1(value) if ".ratio" in name else abs(value)

    assert ours(name, "sex") == pytest.approx(value, abs=1e-12)


@cache
def of_aequitas() -> pd.DataFrame:
    """The table of Aequitas: a row per group, with disparities to White."""
    group = pytest.importorskip("aequitas.group", reason="a peer that is in no extra")
    bias = pytest.importorskip("aequitas.bias", reason="a peer that is in no extra")
    data = pd.DataFrame({"score": rows()["decision"], "label_value": rows()["label"], "race": rows()["race"]})
    table, _ = group.Group().get_crosstabs(data)
    return bias.Bias().get_disparity_predefined_groups(
        table, original_df=data, ref_groups_dict={"race": "White"}, check_significance=False, alpha=0.05
    )


@pytest.mark.parametrize(("theirs", "name"), pairs("column"))
def test_aequitas_by_group(theirs: str, name: str) -> None:
    """Columns of the page, for every group."""
    table = of_aequitas().set_index("attribute_value")[theirs]

    assert {group.name: group.metrics[name].value for group in block("race").groups} == pytest.approx(
        table.to_dict(), abs=1e-12
    )


@pytest.mark.parametrize(("theirs", "name"), pairs("disparity, the furthest from 1"))
def test_aequitas_disparities(theirs: str, name: str) -> None:
    """The least of the disparities to White and their inverses."""
    value = of_aequitas()[theirs].map(inverse_below_1).min()

    assert ours(name, "race") == pytest.approx(value, abs=1e-12)


def test_the_example_of_the_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands, in a checkout."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(example, {"__name__": "__main__"})  # noqa: S102  the page is ours

    assert re.fullmatch(r"0\.\d{4} \[0\.\d{3}, 0\.\d{3}\]\n", capsys.readouterr().out)
