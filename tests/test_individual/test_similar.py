"""Who is similar: every form is read, is written as it is read, and what is none is refused with what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fairfix.data.files import open_source
from fairfix.errors import ColumnError, FairfixError, UsageError
from fairfix.individual.similar import Similar, SimilarFile, files_of
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.text(min_size=1, max_size=6).filter(lambda name: name == name.strip() and "\0" not in name)


def parsed(*given: Any) -> Similar:
    """Return who is similar."""
    return Similar.parse(given)


def test_each_form_is_read() -> None:
    """Blanks do not count; several forms are in one text or in several."""
    similar = parsed(
        "flips; role = husband , wife", "near( radius = 0.1, cost=2 ),learned", "pairs.csv(directions=3)"
    )

    assert similar.flips
    assert similar.comparable == (("role", ("husband", "wife")),)
    assert (similar.radius, similar.cost, similar.learned_by) == (0.1, 2.0, "logistic")
    assert similar.files == (SimilarFile("pairs.csv", 3),)
    assert (
        str(similar) == "flips; role=husband,wife; near(radius=0.1,cost=2); learned; pairs.csv(directions=3)"
    )
    assert parsed(" role = husband , wife ; age=1,2 ").comparable[1] == ("age", ("1", "2"))
    assert parsed() == parsed("") == Similar()


def test_several_of_a_form_are_alternatives() -> None:
    """One of each is in every alternative; the rest is in all."""
    similar = parsed(
        "a=1,2", "near(radius=0.1),near(radius=0.2),near(radius=0.1)", "learned,learned(by=means)"
    )
    texts = [str(one) for one in similar.alternatives]

    assert len(texts) == 4
    assert texts[0] == "a=1,2; near(radius=0.1); learned"
    assert {(one.radius, one.learned_by) for one in similar.alternatives} == {
        (r, by) for r in (0.1, 0.2) for by in ("logistic", "means")
    }


@given(st.dictionaries(NAMES, st.lists(NAMES, min_size=2, max_size=3, unique=True), min_size=1, max_size=3))
def test_columns_and_values_may_have_any_name(values: dict[str, list[str]]) -> None:
    """As a mapping, and as the text that is written of it."""
    similar = parsed(values)

    assert [name for name, _ in similar.comparable] == list(values)
    assert Similar.parse([str(similar)]) == similar


@given(st.text(min_size=1, max_size=30))
def test_no_text_is_a_bug(text: str) -> None:
    """It is one of the forms, a file that is not there, or a UsageError; what is read is written so that it is read."""
    try:
        similar = parsed(text)
    except UsageError:
        return
    assert parsed(str(similar)) == similar


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flip", "did you mean 'flips'"),
        ("nearby(radius=1)", "'nearby' is none of flips, near, learned"),
        ("near", "give the radius, such as near"),
        ("near(radius=-1)", "radius must be at least 0, got -1"),
        ("near(radius=x)", "must be a finite number, got 'x'"),
        ("near(by=means)", "near has no key 'by'; its keys are radius, cost"),
        ("near(radius=0,cost=1)", "the radius is 0"),
        ("learned(by=mean)", "did you mean 'means'"),
        ("pairs.csv(directions=0)", "at least 1, got 0"),
        ("pairs.csv(directions=1.5)", "a whole number, got '1.5'"),
        ("role=", "write COLUMN=VALUE,VALUE"),
        ("role=wife", "write COLUMN=VALUE,VALUE"),
        ("=a,b", "write COLUMN=VALUE,VALUE"),
        ("role=a,b;role=c,d", "'role' is named twice"),
    ],
)
def test_what_is_no_form_is_refused(text: str, message: str) -> None:
    """With what to write in its place."""
    with pytest.raises(UsageError, match="similar") as error:
        parsed(text)
    assert message in str(error.value)


def test_a_file_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a word, with brackets, with an equals sign: what is there is a file, and quotes make anything a file."""
    monkeypatch.chdir(tmp_path)
    for name in ("copies (1).csv", "year=2024.csv", "pairs"):
        Path(name).touch()
        assert parsed(name).files == parsed(f'"{name}"').files == (SimilarFile(name),)
        assert parsed(str(parsed(name))).files == (SimilarFile(name),)
    assert parsed('"flips"').files == (SimilarFile("flips"),)
    assert parsed("s3://bucket/a=b/c.csv").files == (SimilarFile("s3://bucket/a=b/c.csv"),)


FILES = {
    "copies": pd.DataFrame({"person": ["a"], "hobby": ["x"]}),
    "pairs": pd.DataFrame({"one": ["a"], "other": ["b"]}),
    "directions": pd.DataFrame({"age": [1.0]}),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_are_told_apart_by_their_columns(kind: str) -> None:
    """Whatever their names, and rows in memory too."""
    files = files_of(parsed(FILES[kind]), ("person", "hobby", "age", "sex"), "person")
    held = {name: source for name, source in vars(files).items() if source is not None}

    assert list(held) == [kind]
    assert held[kind].columns == open_source(FILES[kind]).columns


def test_pairs_may_name_the_column_of_ids() -> None:
    """Beside a column that the data lack."""
    pairs = pd.DataFrame({"person": ["a"], "partner": ["b"]})
    assert files_of(parsed(pairs), ("person", "age"), "person").pairs is not None


@pytest.mark.parametrize(
    ("frames", "own", "message"),
    [
        (
            [pd.DataFrame({"one": ["a"], "other": ["b"], "hoby": ["c"]})],
            "person",
            "'one', which the data lack",
        ),
        ([pd.DataFrame({"age": [1.0], "hoby": ["c"]})], "person", "did you mean 'hobby'"),
        ([FILES["pairs"]], None, "give their column with `id`"),
        ([FILES["pairs"], FILES["pairs"]], "person", "put the rows of both into one file"),
        ([{"data": FILES["directions"], "directions": 2}], "person", "directions are between the people"),
    ],
)
def test_a_file_that_is_none_is_named(frames: list[Any], own: str | None, message: str) -> None:
    """With its columns, and what the kinds of files have."""
    with pytest.raises((ColumnError, UsageError)) as error:
        files_of(parsed(*frames), ("person", "hobby", "age"), own)
    assert message in str(error.value)


def test_pairs_in_memory_have_directions_too() -> None:
    """As a mapping, whose number is checked as in a text."""
    (one,) = parsed({"data": FILES["pairs"], "directions": 2}).files
    assert one.directions == 2
    assert str(one) == "<DataFrame>(directions=2)"
    with pytest.raises(FairfixError, match="at least 1, got 0"):
        parsed({"data": FILES["pairs"], "directions": 0})
