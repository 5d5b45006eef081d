"""CSV has the numbers of the tables of a result, digit by digit, and no cell that a spreadsheet computes."""

from __future__ import annotations

import csv
import math
from typing import Any

import fairfix
import pytest
from fairfix.report.csv_ import render
from fairfix.report.frames import frame, tables_of
from fairfix.schema.common import SavedResult
from fairfix.tasks.result import Result
from fairfix.tasks.trends import trend_of_audits

from tests.data import people


def results() -> dict[str, Any]:
    """One of each kind."""
    rows = people(400)[["race", "sex", "town", "label", "score"]]
    told: dict[str, Any] = {"protected": ["race"], "label": "label", "score": "score"}
    audit = fairfix.audit(rows, **told, check=["dp.difference<=0.1", "auc.difference<=0.1"])
    earlier = fairfix.audit(rows[:300], **told, check="dp.difference<=0.1")
    two = rows.assign(other=rows["score"][::-1].to_numpy())
    return {
        "audit": audit,
        "trend": Result(trend_of_audits([("a", earlier.content), ("b", audit.content)])),
        "repair": fairfix.repair(rows, **told, method="ramp"),
        "compare": fairfix.compare(rows, **told, methods=["ramp"], slacks=[0]),
        "models": fairfix.compare(two, **told, baseline="other"),
        "slices": fairfix.slices(rows, label="label", score="score", features=["sex", "town"], min_rows=50),
    }


@pytest.fixture(scope="module")
def made() -> dict[str, SavedResult]:
    return {kind: result.content for kind, result in results().items()}


@pytest.mark.parametrize("kind", ["audit", "trend", "repair", "compare", "models", "slices"])
def test_it_has_every_number_of_every_table(kind: str, made: dict[str, SavedResult]) -> None:
    """Read back, the rows of a table are those of its data frame."""
    rows = list(csv.DictReader(render(made[kind]).splitlines()))
    assert rows or kind == "slices"
    for name, (columns, _) in tables_of(made[kind]).items():
        own, table = [row for row in rows if row["fairfix table"] == name], frame(made[kind], name)
        assert len(own) == len(table)
        for row, (_, wanted) in zip(own, table.iterrows(), strict=True):
            for column in columns:
                value, cell = wanted[column], row[column]
                if isinstance(value, float):
                    assert (math.nan if cell == "" else float(cell)) == pytest.approx(
                        value, abs=0, nan_ok=True
                    )
                elif isinstance(value, str):
                    assert cell == value


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@sum(a1)", "\t=1", "a,b", 'a"b', "a\nb"])
def test_no_name_is_a_formula(name: str) -> None:
    """Whatever a group is called, there are as many columns, and a cell begins with no sign of a formula."""
    rows = people(200).replace({"race": {"a": name}})
    text = render(fairfix.audit(rows, protected="race", label="label", score="score").content)
    head, *lines = csv.reader(text.splitlines())
    assert {len(line) for line in lines} == {len(head)}
    groups = {line[head.index("group")] for line in lines}
    assert not [one for one in groups if one.startswith(("=", "+", "-", "@", "\t"))]
    assert len(groups - {""}) == 3
