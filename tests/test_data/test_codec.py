"""What is declared is saved, comes back bit by bit, and nothing else is taken for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.data.codec import (
    Array,
    EndToEnd,
    Saved,
    Setting,
    json_of,
)
from fairfix.errors import ArtifactError
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta


@dataclass(frozen=True, eq=False)
class Run:
    """Numbers that increase."""

    at: npt.NDArray[np.float64]


NUMBERS = {"at": Array("<f8", (None,))}
RUNS = EndToEnd(Run, "lengths", NUMBERS, "names", lambda run: bool((np.diff(run.at) > 0).all()))


@dataclass(frozen=True, eq=False)
class Thing(Saved):
    """A part of every kind."""

    kind: ClassVar[str] = "thing"
    names: Annotated[tuple[str, ...], Meta(min_length=1), Setting("names")]
    colour: Annotated[Literal["red", "blue"], Setting()]
    many: Annotated[int, Meta(ge=1, le=9), Setting()]
    on: Annotated[bool, Setting()]
    share: Annotated[float, Meta(ge=0, le=1), Setting()]
    weights: Annotated[npt.NDArray[np.float64], Array("<f8", ("names", 2), 0.0)]
    runs: Annotated[tuple[Run, ...], RUNS]
    extra: Annotated[npt.NDArray[np.int64] | None, Array("<i8", (None,), optional=True)] = None

    @property
    def sound(self) -> bool:
        """Whether names differ."""
        return len(set(self.names)) == len(self.names)


def thing(names: int = 2, extra: bool = True) -> Thing:
    """Return a thing of so many names."""
    runs = tuple(Run(np.arange(k + 1.0)) for k in range(names))
    more = np.array([-1, 5]) if extra else None
    return Thing(tuple(map(str, range(names))), "red", 3, True, 0.5, np.ones((names, 2)), runs, more)


@given(names=st.integers(1, 5), extra=st.booleans())
def test_what_is_saved_comes_back(names: int, extra: bool) -> None:
    """Through JSON and arrays, a second state is the first."""
    settings, arrays = thing(names, extra).state()
    again = Thing.from_state(json.loads(json.dumps(settings)), arrays).state()

    assert again[0] == settings
    assert {name: a.tobytes() for name, a in again[1].items()} == {n: a.tobytes() for n, a in arrays.items()}
    assert ("extra" in arrays) == extra


@pytest.mark.parametrize(
    "change",
    [
        {"names": []},
        {"names": ["a", "a"]},
        {"names": ["a", 1]},
        {"names": ["a", "b", "c"]},
        {"colour": "green"},
        {"colour": ["red"]},
        {"many": 0},
        {"many": True},
        {"many": 2.0},
        {"on": 1},
        {"share": "1"},
        {"share": True},
        {"share": 2},
        {"share": float("nan")},
        {"lengths": [1, 1]},
        {"lengths": [1, 2.0]},
        {"lengths": [3]},
        {"more": 1},
        {"weights": np.ones((2, 3))},
        {"weights": np.ones((3, 2))},
        {"weights": np.ones((2, 2), dtype=np.float32)},
        {"weights": np.full((2, 2), np.nan)},
        {"weights": np.full((2, 2), np.inf)},
        {"weights": np.full((2, 2), -1e-9)},
        {"weights": None},
        {"at": np.zeros(3)},
        {"another": np.zeros(3)},
        {"extra": np.zeros(3)},
    ],
)
def test_what_is_not_declared_is_refused(change: dict[str, Any]) -> None:
    """Another type, shape, range, number of parts, or parts that contradict each other are an artifact error."""
    settings, arrays = thing().state()
    for name, value in change.items():
        if name in arrays or isinstance(value, np.ndarray):
            arrays[name] = value
        else:
            settings[name] = value

    with pytest.raises(ArtifactError, match="parts of this thing do not fit together"):
        Thing.from_state(settings, arrays)


@pytest.mark.parametrize("name", [*thing().state()[0], *thing().state()[1]])
def test_a_missing_part_is_refused(name: str) -> None:
    settings, arrays = ({n: v for n, v in part.items() if n != name} for part in thing().state())
    if name == "extra":
        assert Thing.from_state(settings, arrays).extra is None
    else:
        with pytest.raises(ArtifactError, match=f"'{name}'"):
            Thing.from_state(settings, arrays)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": NaN}', "holds NaN"),
        (b'{"a": -Infinity}', "holds -Infinity"),
        (b'{"a": 1e999}', "1e999, which is too large"),
        (b'{"a": 18446744073709551616}', "which is too large"),
        (b'{"a": ' + b"9" * 1_000_000 + b"}", r"9{100}, which is too large"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b"[" * 66 + b"]" * 66, "nested too deeply"),
        (rb'{"a": "\ud800"}', "surrogates not allowed"),
        (b"\xff", "utf-8"),
        (b"{", "Expecting"),
    ],
)
def test_json_that_no_code_can_carry_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        json_of(content)


def test_json_that_fairfix_writes_is_read() -> None:
    content = {
        "a": [1.5, -0.0, 1e308, 5e-324, 2**64 - 1, -(2**63), None, True, "\U0001f600 \x00"],
        "b": {"c": {}},
    }

    assert json_of(json.dumps(content).encode()) == content
    assert json_of(b"[" * 64 + b"]" * 64) is not None


def test_an_error_says_where_in_the_content_it_is_and_quotes_little() -> None:
    """The name of the part and the place in it; a megabyte of it is not printed."""
    settings, arrays = thing().state()

    with pytest.raises(ArtifactError, match=r"'names'.*\[1\]"):
        Thing.from_state({**settings, "names": ["race", 7]}, arrays)
    with pytest.raises(ArtifactError, match="'colour'") as caught:
        Thing.from_state({**settings, "colour": "x" * 1_000_000}, arrays)
    assert len(str(caught.value)) < 300
