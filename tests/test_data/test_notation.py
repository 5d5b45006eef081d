"""Notations of numbers: what a CSV file holds is read as it was meant, or refused by name, whatever it is for."""

from __future__ import annotations

import csv
import gzip
import io
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pyarrow as pa
import pytest
from fairfix.data import dialect
from fairfix.data.files import Source, open_source
from fairfix.data.notation import Seen, notation_of
from fairfix.errors import DataError, FairfixError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples

LIBRARY: Any = fairfix
BETWEEN = (".", ",", "'", "’", " ", "\u00a0", "\u202f", "")


def written(value: float, thousands: str, decimal: str, digits: int | None) -> str:
    """Return a number as somebody writes it: with as many digits as needed, or with a fixed number of them."""
    whole, _, part = (repr(value) if digits is None else f"{value:.{digits}f}").partition(".")
    part = "" if digits is None and part == "0" else part
    return f"{int(whole):,}".replace(",", thousands) + (decimal + part if part else "")


def column_of(source: Source, name: str, kind: pa.DataType | None = None) -> list[Any]:
    """Return the values of a column."""
    parts = source.parts([name], {name: kind} if kind else {})
    return [value for part in parts for batch in part.batches() for value in batch.column(0).to_pylist()]


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a file with a column of amounts in some notation, and one of scores in the same or in none."""
    decimal = draw(st.sampled_from(".,"))
    thousands = draw(st.sampled_from([sign for sign in BETWEEN if sign != decimal]))
    digits = draw(st.sampled_from([None, 0, 2, 3]))
    rounded = 0 if digits is None and draw(st.booleans()) else 3
    amounts = draw(
        st.lists(
            st.floats(0, 3e6).map(lambda x: round(x, rounded)) | st.sampled_from([800.0, 12500.0, 22000.0]),
            min_size=1,
            max_size=12,
        )
    )
    scores = [round(draw(st.floats(0, 1)), 2) for _ in amounts] if draw(st.booleans()) else None
    return {
        "amounts": [round(a, digits) if digits is not None else a for a in amounts],
        "scores": scores,
        "thousands": thousands,
        "decimal": decimal,
        "digits": digits,
        "delimiter": draw(st.sampled_from(",;\t")),
        "head": draw(st.sampled_from([dialect.HEAD, 40])),
    }


def text_of(world: dict[str, Any]) -> str:
    """Return a file as text."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=world["delimiter"])
    scores = world["scores"] or ["x"] * len(world["amounts"])
    writer.writerow(["group", "amount", "score"])
    for value, score in zip(world["amounts"], scores, strict=True):
        amount = written(value, world["thousands"], world["decimal"], world["digits"])
        sign = "." if world.get("plain") else world["decimal"]
        writer.writerow(["g", amount, score if score == "x" else str(score).replace(".", sign)])
    return out.getvalue()


@settings(max_examples=examples(400))
@given(world=files())
def test_amounts_are_read_as_they_were_meant_or_refused(
    world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the decimal sign stated they are never refused, unless it separates columns too and nothing is quoted."""
    path = tmp_path_factory.mktemp("amounts") / "d.csv"
    path.write_text(text_of(world))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialect, "HEAD", world["head"])
        with suppress(DataError):  # which says what to state
            # a comma that separates columns is taken for one of thousands where all could be
            by_custom = world["delimiter"] == world["decimal"] == ","
            assert column_of(open_source(path), "amount", pa.float64()) == world["amounts"] or by_custom
        stated = open_source(path, decimal=world["decimal"], delimiter=world["delimiter"])
        assert column_of(stated, "amount", pa.float64()) == world["amounts"]


@pytest.mark.parametrize("trial", range(20))
def test_scores_of_a_program_do_not_decide_on_amounts_of_people(trial: int, tmp_path: Path) -> None:
    """A mix of 12.500 and 800 is in doubt, whatever the scores beside it; amounts in thousands alone are decimals."""
    rng = np.random.default_rng(trial)
    amounts = [12500.0, 800.0, *map(float, rng.integers(1000, 50_000, trial))]
    path = tmp_path / "d.csv"
    for decimal in ".,":
        rows = [
            f"{written(a, decimal, '?', 0)};{str(round(float(rng.random()), 2)).replace('.', decimal)}"
            for a in amounts
        ]
        path.write_text("amount;score\n" + "\n".join(rows))
        with pytest.raises(DataError, match="column 'amount'"):
            column_of(open_source(path), "amount", pa.float64())
        path.write_text("amount;score\n" + "\n".join(row for row in rows if not row.startswith("800;")))
        source = open_source(path)
        assert column_of(source, "amount", pa.float64()) == [a / 1000 for a in amounts if a != 800]
        assert "amount" in source.remark


def people(n: int = 400) -> dict[str, list[Any]]:
    """Return rows with a feature, a weight, a real label and a value for it, all above and below a thousand."""
    rng = np.random.default_rng(5)
    income = np.round(np.exp(rng.normal(8, 1.5, n))) + 1
    group = rng.choice(["a", "b"], n)
    return {
        "group": group.tolist(),
        "income": income.tolist(),
        "weight": (np.round(rng.uniform(1, 3000, n)) + 0.0).tolist(),
        "target": np.round(income * rng.uniform(0.5, 1.5, n)).tolist(),
        "value": np.round(income * rng.uniform(0.5, 1.5, n)).tolist(),
        "label": (rng.random(n) < np.where(group == "a", 0.6, 0.4)).astype(int).tolist(),
    }


def saved(rows: dict[str, list[Any]], path: Path, thousands: str, decimal: str = ",") -> Path:
    """Write rows to a file, packed by its name, or to three of a folder."""
    if path.suffix == "":
        path.mkdir()
        for i in range(3):
            saved({k: v[i::3] for k, v in rows.items()}, path / f"{i}.csv", thousands, decimal)
        return path
    lines = [";".join(rows)]
    for row in zip(*rows.values(), strict=True):
        cells = [written(v, thousands, decimal, None) if isinstance(v, float) else str(v) for v in row]
        lines.append(";".join(cells))
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def numbers_of(result: Any) -> dict[str, Any]:
    """Return the numbers of a result."""
    content = result.to_dict()
    return {key: content[key] for key in ("overall", "attributes", "not_computed")}


PARTS: list[dict[str, Any]] = [
    {"task": "regression", "label": "target", "score": "value"},
    {"label": "label", "score": "value", "score_scale": "raw", "threshold": 3000},
    {"label": "label", "prediction": "label2", "weight": "weight"},
    {"label": "label", "prediction": "label2", "protected": "income", "bands": "income=1000,5000"},
    {"label": "label", "prediction": "label2", "protected": "income", "bands": "income=quartiles"},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "folder"])
@pytest.mark.parametrize("asked", PARTS)
def test_an_audit_reads_thousands_in_every_part(asked: dict[str, Any], name: str, tmp_path: Path) -> None:
    """The same numbers as without signs, with the decimal sign stated; without it, an error that names the column."""
    rows = people()
    rows["label2"] = [1 - one for one in rows["label"][:100]] + rows["label"][100:]
    asked = {"protected": "group", **asked}
    plain = LIBRARY.audit(saved(rows, tmp_path / f"plain {name}".replace("folder", ""), "", "."), **asked)
    path = saved(rows, tmp_path / name, ".")
    with pytest.raises(FairfixError, match=r"column '(value|target|weight|income)'.*decimal=,"):
        LIBRARY.audit(path, **asked)
    assert numbers_of(LIBRARY.audit(path, decimal=",", **asked)) == numbers_of(plain)


def test_a_rule_learns_from_thousands_and_predicts_from_them(tmp_path: Path) -> None:
    """As from plain numbers; a file to predict on is refused where it is open what its numbers are."""
    rows = people()
    rows = {name: rows[name] for name in ("group", "income", "label")} | {"id": [f"n{i}" for i in range(400)]}
    plain = saved(rows, tmp_path / "plain.csv", "", ".")
    path = saved(rows, tmp_path / "d.csv", ".")
    asked: dict[str, Any] = {"protected": "group", "method": "logloss", "features": "income", "id": "id"}
    with pytest.raises(FairfixError, match=r"column 'income'.*decimal=,"):
        LIBRARY.repair(path, **asked)
    repaired = LIBRARY.repair(path, decimal=",", **asked).repaired
    decided = LIBRARY.predict(repaired, plain)
    assert decided.column("p_positive") == LIBRARY.predict(repaired, path, decimal=",").column("p_positive")
    with pytest.raises(FairfixError, match=r"column 'income'"):
        LIBRARY.predict(repaired, path)
    # a column that the rule does not need stays as it is written
    more = {**rows, "spare": rows["income"]}
    del more["income"]
    path = tmp_path / "more.csv"
    saved(more, path, ".")
    lines = path.read_text().splitlines()
    wide = [f"{line};{'income' if i == 0 else rows['income'][i - 1]}" for i, line in enumerate(lines)]
    path.write_text("\n".join(wide))
    spare = LIBRARY.predict(repaired, path).column("spare").to_pylist()
    assert spare == [written(v, ".", ",", None) for v in rows["income"]]


@pytest.mark.parametrize("value", ["$12,000", "12.5%", "(1,200)", "EUR 800", "1 200 kr", "12,000", "1'200"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_numbers_as_text_are_no_categories(value: str, kind: str, tmp_path: Path) -> None:
    """A feature of them is read as numbers or refused by name, whatever the format."""
    import pyarrow.parquet as pq

    rows = people()
    table = pa.table(
        {"group": rows["group"], "label": rows["label"], "fee": [value, value.replace("2", "4")] * 200}
    )
    data: Any = table
    if kind == "parquet":
        pq.write_table(table, data := tmp_path / "d.parquet")
    elif kind == "csv":
        (data := tmp_path / "d.csv").write_text("")
        with data.open("w", newline="") as file:
            csv.writer(file).writerows([table.column_names, *zip(*table.to_pydict().values(), strict=True)])
    asked: dict[str, Any] = {"protected": "group", "method": "logloss", "features": "fee"}
    if kind == "csv":
        assert dict(LIBRARY.repair(data, **asked).repaired.predictor.features) == {"fee": "number"}
    else:
        with pytest.raises(FairfixError, match=r"column 'fee'.*holds"):
            LIBRARY.repair(data, **asked)


@pytest.mark.parametrize("late", ["12.500", "0.5", "1.234.567", "many"])
def test_what_comes_behind_the_head_counts(
    late: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers in the head say nothing of decimals behind it."""
    monkeypatch.setattr(dialect, "HEAD", 200)
    path = tmp_path / "d.csv"
    path.write_text("group,amount\n" + "a,800\n" * 100 + f"a,{late}\n" + "a,700\n" * 10)
    source = open_source(path)
    if late == "0.5":
        assert column_of(source, "amount", pa.float64())[100:102] == [0.5, 700.0]
        path.write_text(path.read_text().replace("a,700", "a,12.500"))
        assert column_of(open_source(path), "amount", pa.float64())[100:102] == [0.5, 12.5]
    elif late == "1.234.567":
        assert column_of(source, "amount", pa.float64())[100:102] == [1234567.0, 700.0]
    else:
        with pytest.raises(DataError, match=r"amount|conversion error"):
            column_of(source, "amount", pa.float64())


@pytest.mark.slow
@pytest.mark.parametrize("rows", [40, 40_000])
@pytest.mark.parametrize("odd", ["", "?", "NA"])
def test_numbers_in_quotes_beside_empty_texts_are_numbers(rows: int, odd: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["amount", "real", "zip", "word", "late"])
        for i in range(rows):
            gap = i % 7 == 3
            late = "x" if i == rows - 1 else "" if gap else i
            writer.writerow(
                [odd if gap else i, odd if gap else i / 4, f"{i:05d}" if i else "", odd or "w", late]
            )
    source = open_source(path)
    kinds = {field.name: str(field.type) for field in source.schema}

    assert kinds == {
        "amount": "double",
        "real": "double",
        "zip": "string",
        "word": "string",
        "late": "string",
    }
    batches = [batch for part in source.parts(["amount", "real"]) for batch in part.batches()]
    amounts = [value for batch in batches for value in batch.column("amount").to_pylist()]
    assert amounts == [None if i % 7 == 3 else float(i) for i in range(rows)]


def test_columns_that_are_open_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairfix.data.sources import csv as kind

    path, calls, before = tmp_path / "x.csv", list[int](), kind.reader_of
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow([f"n{i}" for i in range(60)])
        writer.writerows([[str(j) if j % 5 else "" for _ in range(60)] for j in range(3000)])

    def counted(*given_: Any, **more: Any) -> Any:
        calls.append(1)
        return before(*given_, **more)

    monkeypatch.setattr(kind, "reader_of", counted)
    source = open_source(path)

    assert {str(field.type) for field in source.schema} == {"double"}
    assert len(calls) <= 3


def test_what_says_nothing_is_plain() -> None:
    """Missing entries, infinities and exponents show no notation; text is no number."""
    seen = Seen()
    seen.add(["", "NA", "1e5", "inf", "12"])
    assert seen.is_plain
    number = notation_of(seen, None, None).number
    assert number("1e5") == 1e5
    assert math.isnan(number("NA") or 0.0)
    assert number("x") is None
