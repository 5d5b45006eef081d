"""A repaired predictor decides on rows of every kind that a program has, by one set of rules."""

from __future__ import annotations

from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.errors import DataError, UsageError
from fairfix.models.repaired import Repaired

OUTPUT = ["p_positive", "decision", "randomized"]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """People with an id, a group that is favoured, a score and a label."""
    rng = np.random.default_rng(5)
    race = rng.choice(["a", "b"], 800)
    score = rng.beta(2, 2, 800) * np.where(race == "a", 1.0, 0.8)
    label = (rng.random(800) < score).astype(int)
    return pd.DataFrame(
        {"person": [f"p{i}" for i in range(800)], "race": race, "score": score, "label": label}
    )


@pytest.fixture(scope="module")
def repaired(rows: pd.DataFrame) -> Repaired:
    """A ramp wide enough that some decisions are drawn."""
    return fairfix.repair(rows, protected="race", method="ramp", gamma=0.5, id="person").repaired


@pytest.fixture(scope="module")
def decided(repaired: Repaired, rows: pd.DataFrame) -> pd.DataFrame:
    """What the function of the library decides."""
    out: pd.DataFrame = fairfix.predict(repaired, rows)
    assert out.randomized.any()
    return out


def test_every_kind_of_rows_comes_back_as_it_came(
    repaired: Repaired, rows: pd.DataFrame, decided: pd.DataFrame
) -> None:
    """With the same decisions, whatever the kind."""
    table, dicts = pa.Table.from_pandas(rows, preserve_index=False), rows.to_dict("records")
    columns: dict[str, Any] = rows.to_dict("list")

    assert repaired.predict(table).to_pandas().equals(decided)
    assert repaired.predict(rows).equals(decided)
    assert repaired.predict(dicts) == decided.to_dict("records")
    assert repaired.predict(columns) == decided.to_dict("list")
    assert repaired.predict([]) == []


def test_a_frame_keeps_its_index_and_its_types(repaired: Repaired, rows: pd.DataFrame) -> None:
    """Also where the index repeats and a column is categorical."""
    frame = rows.assign(race=rows.race.astype("category")).set_axis([7] * len(rows))
    out = repaired.predict(frame)

    assert out[list(frame)].equals(frame)
    assert list(out) == [*frame, *OUTPUT]
    assert (out.p_positive.to_numpy() == repaired.predict(rows).p_positive.to_numpy()).all()


def test_the_rules_of_the_artifact_hold(repaired: Repaired, rows: pd.DataFrame) -> None:
    """Of unseen groups, missing scores, ids and columns, with the choices of the function ``predict``."""
    row: dict[str, Any] = rows.loc[0].to_dict()
    with pytest.raises(DataError, match="group 'z'"):
        repaired.predict({**row, "race": "z"})
    assert repaired.predict({**row, "race": "z"}, unseen="abstain")["decision"] is None
    base = repaired.predict({**row, "race": "z", "score": 0.9}, unseen="original")
    assert (base["p_positive"], base["decision"]) == (1.0, 1)
    with pytest.raises(DataError, match="missing score"):
        repaired.predict({**row, "score": None})
    assert repaired.predict({**row, "score": None}, missing="abstain")["p_positive"] is None
    with pytest.raises(DataError, match="repeated"):
        repaired.predict([row, row])
    assert len(repaired.predict([row, row], duplicates="share")) == 2
    with pytest.raises(DataError, match="no column 'race'"):
        repaired.predict({name: row[name] for name in ("person", "score")})
    with pytest.raises(DataError, match="group"):  # a key that only one row lacks is a missing value
        repaired.predict([row, {"person": "new", "score": 0.2}])


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"missing": "abstian"}, "did you mean 'abstain'"),
        ({"unseen": "drop"}, "unseen"),
        ({"duplicates": "x"}, "duplicates"),
        ({"model": "m.skops"}, "leave out `model`"),
    ],
)
def test_a_word_that_is_none_is_an_error(
    repaired: Repaired, rows: pd.DataFrame, given: dict[str, Any], word: str
) -> None:
    """It is no silent choice of another."""
    with pytest.raises(UsageError, match=word):
        repaired.predict(rows, **given)


def test_what_is_no_rows_is_said(repaired: Repaired) -> None:
    """A dict that is half a row, and a list of something else."""
    with pytest.raises(DataError, match="'race' is a list and 'person' is not"):
        repaired.predict({"person": "p", "race": ["a"], "score": 0.1})
    with pytest.raises(DataError, match="a dict for each row"):
        repaired.predict([0.1, 0.2])
    with pytest.raises(DataError, match="cannot read data"):
        repaired.predict(3)


def test_only_rows_with_an_id_are_said_to_be_decided_by_it(rows: pd.DataFrame) -> None:
    for name in ("person", None):
        result = fairfix.repair(rows, protected="race", method="ramp", gamma=0.5, id=name)
        text = " ".join(str(result).split())
        assert "decisions are randomized" in text
        assert ("drawn once from the row ID" in text) == (name is not None)


def test_rows_of_each_unseen_group_are_counted_for_themselves(repaired: Repaired, rows: pd.DataFrame) -> None:
    odd = rows.head(50).assign(race=["x", "y", "x", *["z"] * 4, *rows["race"][7:50]])
    with pytest.raises(
        DataError, match=r"'x' of 'race' was not .* \(2, and 5 of other such groups, of the 50 rows"
    ):
        repaired.predict(odd)
    with pytest.raises(DataError, match=r"\(2 of the 3 rows"):
        repaired.predict(odd.iloc[[0, 2, 10]])
