"""The grammar of checks and constraints: names with any signs, in one way of quoting wherever names are written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.checks import Check
from fairfix.auditing.comparisons import Comparison, written
from fairfix.auditing.grammar import read, turned
from fairfix.cli import run
from fairfix.data.merging import parse_merge
from fairfix.data.names import ValuedColumn, joined_names, key_and_rest, quoted_name, split_names
from fairfix.data.numeric_groups import parse_bands
from fairfix.errors import UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

SIGNS = '[]=,"<>.%*x &'
NAMES = (
    st.text(st.sampled_from("ab1" + SIGNS), min_size=1, max_size=8)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: any(one.isalpha() for one in text))
)
GROUPS = NAMES.filter(lambda text: " & " not in text)


@given(NAMES, GROUPS, st.sampled_from(["", "."]))
def test_a_condition_reads_the_names_that_are_quoted_in_it(name: str, group: str, space: str) -> None:
    """Also in a list of conditions; the text of a comparison is read as that comparison."""
    of = Comparison("true_positive_rate", attribute=name, group=group)
    blank = " " if space else ""
    text = f"tpr[{written(name)}{blank}={blank}{written(group)}]{blank}>={blank}0.5"
    one, other = read(f"{text},{blank}{of}>=0.5")

    assert (one.attribute, one.group) == (other.attribute, other.group) == (name, group)
    assert Check.parse(text).comparison == of
    assert read(f"ks[{written(name)}]<=0.1")[0].attribute == name


@given(NAMES, st.lists(NAMES, min_size=1, max_size=3, unique=True))
def test_keys_and_lists_read_what_is_quoted_in_them(name: str, others: list[str]) -> None:
    """Columns with values, bands, merges, references and lists of columns."""
    assert split_names(joined_names(others)) == others
    key = quoted_name(name, "=")
    assert key_and_rest(f"{key}={others[0]}") == (name, "=", others[0])
    assert parse_bands([f"{key}=18,65"]) == parse_bands({name: [18, 65]}) == {name: (18.0, 65.0)}
    ((column, merged),) = parse_merge([f"{key}={joined_names(others)}"]).items()
    assert (column, [*merged]) == (name, others)
    quoted = '"' + name.replace('"', '""') + '"'
    valued = ValuedColumn.parse(f"{quoted}={joined_names(others)}", (name,), "label")
    assert valued == (name, tuple(others), "")


@settings(max_examples=15, deadline=None)
@given(
    st.lists(NAMES.filter(lambda one: one.islower()), min_size=3, max_size=3, unique_by=str.casefold), GROUPS
)
def test_an_audit_finds_columns_and_groups_of_any_name(names: list[str], group: str) -> None:
    """Checks, references, bands and labels name the same columns and groups."""
    protected, label, number = (f"{one}{at}" for at, one in enumerate(names))
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            protected: np.where(rng.random(60) < 0.5, group, "other one"),
            number: rng.integers(18, 80, 60),
            label: np.where(rng.random(60) < 0.5, "yes, sir", "no"),
            "decided": rng.integers(0, 2, 60),
        }
    )
    quoted = [written(one) for one in (protected, number)]
    result = fairfix.audit(
        data,
        protected=[protected, number],
        label=f'{quoted_name(label, "=<>")}="yes, sir"',
        prediction="decided",
        bands=[f"{quoted_name(number, '=')}=40"],
        reference=[f"{quoted_name(protected, '=')}={quoted_name(group)}"],
        check=[
            f"dp.difference[{quoted[0]}]<=1",
            f"dp.difference.to_reference[{quoted[0]}]<=1",
            f"tpr[{quoted[0]}={written(group)}]>=0",
            f"tpr[{quoted[1]}=40 or more]>=0",
        ],
    )
    checked = [(one["attribute"], one["value"] is not None) for one in result.to_dict()["checks"]]
    assert checked == [(protected, True), (protected, True), (protected, True), (number, True)]


def test_names_are_quoted_alike_on_the_command_line_and_in_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One text each, and the same result; the limit of the constraint holds for that group."""
    rng = np.random.default_rng(1)
    group = np.where(rng.random(800) < 0.4, 'a "b", c]', "d=e")
    data = pd.DataFrame({"sex=[x]": group, "score": np.clip(rng.random(800) + 0.2 * (group == "d=e"), 0, 1)})
    data["label"] = (rng.random(800) < data["score"]).astype(int)
    data["id"] = range(800)
    data.to_parquet(tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    of = '"sex=[x]"="a ""b"", c]"'
    check, constraint = f"tpr[{of}]>=0", f"ks.to_overall[{of}]<=0.03"
    words = ["--protected", '"sex=[x]"', "--reference", of, "--check", check]
    assert run(["audit", "rows.parquet", *words, "--format", "json", "--config", "none"]) == 0
    shell = json.loads(capsys.readouterr().out)
    Path("fairfix.toml").write_text(
        f"protected = ['\"sex=[x]\"']\nreference = ['{of}']\ncheck = ['{check}']\n"
        f"[repair]\nconstraint = '{constraint}'\n"
    )
    assert run(["audit", "rows.parquet", "--format", "json"]) == 0
    configured = json.loads(capsys.readouterr().out)

    for check in configured["checks"]:
        assert check.pop("written")["file"] == "fairfix.toml"
    assert configured["checks"] == shell["checks"]
    assert shell["checks"][0]["value"] is not None
    method = ["--method", "fair-regression", "--group", "used", "--features", "score", "--id", "id"]
    assert run(["repair", "rows.parquet", *method, "--format", "json", "-o", "a.fairfix"]) in (0, 3)
    result = json.loads(capsys.readouterr().out)
    assert result["parameters"]["constraint"] == constraint


READS: dict[str, Callable[[str], object]] = {
    "check": Check.parse,
    "constraint": lambda text: fairfix_ramp(text),
}


def fairfix_ramp(text: str) -> object:
    """Return the method whose constraint is a text."""
    from fairfix.methods.ramp import Ramp

    return Ramp(constraint=text)


@pytest.mark.parametrize("place", READS)
@pytest.mark.parametrize(
    ("guess", "right"),
    [
        ("dp.ratio>=80", "dp.ratio>=0.8"),
        ("0.8 <= dp.ratio", "dp.ratio>=0.8"),
        ("dp.difference<=10", "dp.difference<=0.1"),
        ("dp>=0.8", "dp.ratio>=0.8"),
        ("dp.difference[race]>=0.1", "dp.difference[race]<=0.1"),
    ],
)
def test_first_guesses_are_answered_with_the_right_condition(place: str, guess: str, right: str) -> None:
    """The proposal is read, and says what was meant."""
    with pytest.raises(UsageError) as refused:
        READS[place](guess)

    assert right in str(refused.value) or (guess, right) in refused.value.instead
    READS[place](right)


def test_a_percentage_is_a_limit_of_a_fraction_alone() -> None:
    """10% is 0.1 of rates and ratios; a loss has no percentage."""
    assert Check.parse("dp.difference<=10%").limit == pytest.approx(0.1)
    assert Check.parse("dp.ratio >= 80%").limit == pytest.approx(0.8)
    assert Check.parse("mean_score.difference<=3").limit == 3
    for text in ("log_loss.max<=10%", "dp.difference<=%", "dp.difference<=1.2"):
        with pytest.raises(UsageError):
            Check.parse(text)
    assert turned("0.8<=dp.ratio[race]") == "dp.ratio[race]>=0.8"
    assert turned("dp.ratio>=0.8") == ""
    assert math.isclose(Check.parse(turned("80%<=dp.ratio")).limit, 0.8)


def test_each_column_is_checked_without_the_intersections() -> None:
    """A column with that name is in quotes."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({name: rng.choice(["a", "b"], 200) for name in ("race", "each")})
    data["decided"] = rng.integers(0, 2, 200)
    more = {"protected": ["race", "each"], "prediction": "decided", "intersect": True}
    for attribute, seen in (
        ("[each]", ["race", "each"]),
        ('["each"]', ["each"]),
        ("", ["race", "each", "race x each"]),
    ):
        result = fairfix.audit(data, check=f"dp.difference{attribute}<=1", **more)
        assert [one["attribute"] for one in result.to_dict()["checks"]] == seen
