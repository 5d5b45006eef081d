"""Specs: what is written is read back, and an error names the key, the value and what is allowed."""

from __future__ import annotations

import pytest
from fairfix.data.domain import domain
from fairfix.data.names import joined_names
from fairfix.data.spec import Form, Spec, parse_spec, split_specs
from fairfix.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

FORMS = {
    "linear": Form(
        "a linear model",
        {
            "l2": domain(0.001, "the penalty", above=0.0, words=("cv",)),
            "basis": domain("plain", "what it is linear in", choices=("plain", "splines")),
        },
    ),
    "network": Form("a network", {"hidden": domain(8.0, "units", at_least=1, kind=int)}),
    "small": Form("a rule", {"reason": domain("", "why")}),
    "trees": Form("trees", {}),
}


def read(text: str) -> Spec:
    """Return the spec of a text."""
    return parse_spec("learner", text, FORMS)


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("trees", "trees", {}),
        ("trees()", "trees", {}),
        ("linear", "linear", {"l2": 0.001, "basis": "plain"}),
        (" linear ( l2 = cv , basis=splines ) ", "linear", {"l2": "cv", "basis": "splines"}),
        ("linear(basis=splines,l2=1e-2)", "linear", {"l2": 0.01, "basis": "splines"}),
        ('small(reason="too few, see (2)")', "small", {"reason": "too few, see (2)"}),
        ("small(reason=n<10 (annex))", "small", {"reason": "n<10 (annex)"}),
    ],
)
def test_reads_names_and_keys(text: str, name: str, values: dict[str, object]) -> None:
    """Keys come in any order, blanks do not count, and what is not given has its default."""
    spec = read(text)
    assert (spec.name, dict(spec.settings)) == (name, values)


@pytest.mark.parametrize(
    ("text", "words", "instead"),
    [
        ("forest", ("'forest'", "linear, network, small, trees"), ()),
        ("treees", ("'treees'", "did you mean 'trees'?"), ("trees",)),
        ("linear(base=1)", ("'base'", "l2, basis"), ("linear(basis=1)",)),
        ("linear(cv)", ("'cv'", "KEY=VALUE", "l2, basis"), ()),
        ("linear(l2=1,l2=2)", ("'l2'", "twice"), ()),
        ("linear(l2=0)", ("l2", "above 0", "got 0"), ()),
        ("linear(l2=ridge)", ("cv", "'ridge'"), ()),
        ("linear(basis=spline)", ("plain, splines", "'spline'"), ("linear(basis=splines)",)),
        ("network(hidden=2.5)", ("hidden", "whole", "2.5"), ()),
        ("trees(l2=1)", ("'l2'", "none"), ()),
        ("linear(l2=1", ("closing",), ()),
        ("linear(l2=1)x", ("closing",), ()),
    ],
)
def test_errors_name_what_is_allowed(text: str, words: tuple[str, ...], instead: tuple[str, ...]) -> None:
    """A wrong name, key or value is named with those that are allowed, and the nearest is proposed."""
    with pytest.raises(UsageError) as caught:
        read(text)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert tuple(new for _, new in caught.value.instead) == instead


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc",))))
def test_reads_back_what_it_writes(reason: str) -> None:
    """A value may be any text in quotes; the text of a spec has the keys that were given."""
    spec = parse_spec("profile", f"small(reason={joined_names([reason])})", FORMS)
    assert parse_spec("profile", str(spec), FORMS) == spec
    assert str(read("linear(l2=cv)")) == "linear(l2=cv)"
    assert str(read("linear")) == "linear"


@given(
    st.lists(st.sampled_from(("trees", "linear(l2=1,basis=splines)", 'small(reason="a, (b")')), min_size=1)
)
def test_splits_lists_of_specs(parts: list[str]) -> None:
    assert split_specs(" , ".join(parts)) == parts
