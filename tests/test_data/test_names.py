"""Names: the nearest of some, as every message asks for it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fairfix.data.merging import parse_merge
from fairfix.data.names import did_you_mean, joined_names, nearest, quoted_name, shell_line, split_names
from fairfix.data.noise_spec import parse_membership, parse_radii
from fairfix.data.numeric_groups import parse_bands
from fairfix.errors import UsageError
from fairfix.tasks.audit import references_of
from fairfix.tasks.dataset import missing_as
from fairfix.tasks.repair import chosen_method
from hypothesis import given
from hypothesis import strategies as st

KEYED: dict[str, Callable[[list[str]], Mapping[str, Any]]] = {
    "bands=": parse_bands,
    "merge=": parse_merge,
    "missing=": lambda texts: missing_as(texts)["missing_of"],
    "reference=": lambda texts: references_of(texts, ["a", "b"]),
    "noise=radius:": lambda texts: parse_radii(texts),
    "noise=membership:": lambda texts: parse_membership([*texts, "other"]),
}
"""Option -> its reader of KEY=VALUE."""

GIVEN = {"bands=": "3", "merge=": "x,y", "missing=": "drop", "noise=radius:": "0.1"}
"""Option -> a value; any name does for the others."""


@pytest.mark.parametrize("option", KEYED)
def test_every_option_reads_keys_and_values_alike(option: str) -> None:
    """A key in quotes may have any sign. A text without key or value, or with a key again, is named with a remedy."""
    read, value = KEYED[option], GIVEN.get(option, "x")
    for key in ("a", "b=c", 'd"e', "f,g"):
        assert key in read([f" {quoted_name(key, '=')} = {value} "])
    for text in ("a=", "=x", " = ", '"a=b"='):
        with pytest.raises(UsageError, match=f"^`{option}{text}`: write [A-Z]+"):
            read([text])
    if option != "merge=":
        with pytest.raises(UsageError, match="twice"):
            read([f"a={value}", f"a={value}"])


def test_the_nearest_name_is_told_whatever_its_capitals() -> None:
    """As it is written where it is; of names that differ in capitals alone the first, and several where asked for."""
    assert nearest("race", ["Label", "RACE", "Race"]) == ["RACE"]
    assert nearest("RCAE", ["label", "race"]) == ["race"]
    assert nearest("slack", ["slacks", "gamma", "slack_of"], 2) == ["slacks", "slack_of"]
    assert (
        did_you_mean("slack", ("slacks", "gamma", "slack_of"), 3) == "; did you mean 'slacks' or 'slack_of'?"
    )
    assert did_you_mean("qqqqq", ("slacks", "gamma")) == ""


@pytest.mark.parametrize(
    ("typed", "columns", "near"),
    [
        ("SUSPECT_RACE", ["SUSPECT_SEX", "SUSPECT_RACE_DESCRIPTION"], "SUSPECT_RACE_DESCRIPTION"),
        ("race", ["trace", "race_recorded", "Race"], "Race"),
        ("race", ["trace", "race_of_the_applicant_as_recorded"], "race_of_the_applicant_as_recorded"),
        ("2", ["c1", "c2", "c12"], "c2"),
        ("12", ["c1", "c2", "c12"], "c12"),
        ("y", ["year", "z"], None),
        ("2", ["c1", "race", "sex"], None),
        ("7", ["c1", "c2"], None),
    ],
)
def test_a_name_that_begins_so_and_the_column_at_a_place_are_nearest(
    typed: str, columns: list[str], near: str | None
) -> None:
    assert nearest(typed, columns) == ([near] if near else [])


def test_a_parameter_that_a_method_has_not_is_told_the_nearest() -> None:
    """Also where it comes with a request, whose keywords no signature has checked."""
    with pytest.raises(UsageError, match=r"^`gama` is not an option of ramp; did you mean 'gamma'\?$"):
        chosen_method("ramp", {"gama": 0.1})


@pytest.mark.parametrize(
    "names",
    [["age", "income"], ["c,o", "g5"], ['a "b"', " c ", '"d"', 'K="x,y"'], ["A=p,a", "B=p=b"], ["only"]],
)
def test_a_list_of_names_is_read_as_it_was_written(names: list[str]) -> None:
    assert split_names(joined_names(names)) == names


def test_names_in_quotes_may_follow_a_key() -> None:
    """As a user writes them; a comma too much leaves an empty name."""
    assert split_names('A="p,a", B=p=b,, c') == ["A=p,a", "B=p=b", "", "c"]


SIGNS = st.text(
    st.sampled_from(list("ab '\"$`\\!~*?#&;|<>()[]{}=%^\n\t-"))
    | st.characters(exclude_characters="\0", codec="utf-8")
)


@given(st.lists(SIGNS, max_size=4))
def test_a_shell_reads_the_words_of_a_line(words: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", "printf '%s\\0' " + shell_line(["-", *words])], capture_output=True, check=True
    )
    assert done.stdout.decode().split("\0")[1:-1] == words


def test_a_condition_with_texts_is_readable_in_a_line() -> None:
    assert shell_line(["--where", "city == 'A b'"]) == "--where \"city == 'A b'\""
