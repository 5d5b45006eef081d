"""Pictures: what is written in them is told apart as its names are."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

from fairfix.report import svg
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples

WORD = st.sampled_from(["Hispanic", "female", "male", "& ", "…", " 1", " 2", "x" * 30, "y" * 30, "群体", ""])
NAMES = st.lists(st.lists(WORD, max_size=6).map("".join) | st.text("ab …1", max_size=40), max_size=40)


@settings(max_examples=examples(600))
@given(names=NAMES, most=st.integers(8, 60))
def test_shortened_names_are_distinct_where_names_are(names: list[str], most: int) -> None:
    """Whatever they are; short enough, and short ones stay as they are."""
    short = svg.shortened(names, most)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(set(names))
    assert all(len(text) <= most for text in short.values())
    assert all(short[name] == name for name in names if len(name) <= most)


def test_every_picture_tells_its_rows_apart() -> None:
    """Rows, panels, pairs and curves of names that differ in their middle or their end alone."""
    names = [
        f"{race} & {sex}"
        for race in ("Hispanic", "Hispanic or Latino of any race")
        for sex in ("female", "male")
    ]
    names += [f"{'a' * 30}{i}{'b' * 30}" for i in range(3)]
    rows = [svg.Dot(name, 0.5, 0.4, 0.6, "") for name in names]
    few = names[: svg.NAMED]
    curves = [svg.Curve(name, ((0.0, 0.1 * i), (1.0, 0.1 * i + 0.2))) for i, name in enumerate(few)]
    for count, drawing in (
        (len(names), svg.dots(rows, (0, 1))),
        (len(names), svg.dots([replace(row, text="x" * 60) for row in rows], (0, 1))),
        (len(names), svg.pairs([(name, row, row) for name, row in zip(names, rows, strict=True)], (0, 1))),
        (len(few), svg.lines(curves, ("x", "y"), (0, 1))),
    ):
        texts = {unescape(text) for text in re.findall(r">([^<>]+)</text>", drawing.body)}
        assert len({text for text in texts if text[0] in "Ha"}) >= count


@settings(max_examples=examples(300))
@given(names=NAMES, room=st.integers(150, 400))
def test_fitted_names_have_room_and_stay_apart(names: list[str], room: int) -> None:
    """As wide as they may be, and a name that fits stays as it is."""
    short = svg.fitted(names, room)
    assert len(set(short.values())) == len(set(names))
    assert all(svg.width_of(text) <= room for text in short.values())
    if all(svg.width_of(name) <= room for name in names):
        assert all(short[name] == name for name in names)
