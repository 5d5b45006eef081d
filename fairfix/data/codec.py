"""Codec: what a thing holds, declared once, from which it is saved, checked and made again.

A thing is saved as settings (JSON values) and named arrays. A class that is saved derives from :class:`Saved`, and its
fields are annotated with a :class:`FieldForm`, which says how the value is kept and what it must be to be taken back.
Forms take what they read out of a :class:`CodecState`; what is left at the end does not belong there.

Shapes are numbers, names or None. A name stands for a number that is settled where it is met first, by an array or by
the length of a list, and held against everywhere else; None is any number.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt

from fairfix.errors import ArtifactError

Arrays = Mapping[str, npt.NDArray[Any]]
LARGEST = float(np.finfo(np.float64).max)
ABOVE_0 = float(np.nextafter(0.0, 1.0))
"""Least positive float: a bound that leaves out 0."""

Kind = TypeVar("Kind")
Shape = tuple[int | str | None, ...]

DEEPEST = 64
"""Levels of JSON within one another; fairfix writes some 12, and code that walks them must not run out of stack."""

LARGEST_WHOLE = 1 << 64
"""Whole numbers are below it: more is no number of anything, and no float either."""

HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Escape of JSON for a possible half of a surrogate pair, which is no text."""

LISTED = 5
"""Names that a message lists."""

LONGEST_SHOWN = 100
"""Signs of a value that is quoted in a message."""

LONGEST_FAULT = 400
"""Signs of what is wrong with a file, which may quote names that are in it."""


def need(sound: object, reason: str) -> None:
    """Raise a ValueError with the reason, unless the condition holds."""
    if not sound:
        raise ValueError(reason)


def shown(value: Any) -> str:
    """Return a value for a message, cut where it is long."""
    return shortened(repr(value))


def shortened(words: str, most: int = LONGEST_SHOWN) -> str:
    """Return words, cut where they are long."""
    return words if len(words) <= most else f"{words[:most]}..."


def json_of(content: bytes) -> Any:
    """Return what JSON in UTF-8 holds; a ValueError where it is none, or more than JSON has or code can carry.

    Refused are a key that is there twice, numbers that are not finite or too large, and many levels of nesting.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        need(len(out) == len(pairs), "a key is there twice")
        return out

    def constant(word: str) -> NoReturn:
        raise ValueError(f"it holds {word}")

    def real_number(digits: str) -> float:
        number = float(digits)
        need(math.isfinite(number), f"it holds the number {digits[:LONGEST_SHOWN]}, which is too large")
        return number

    def whole_number(digits: str) -> int:
        short = len(digits) <= len(str(-LARGEST_WHOLE))  # else Python takes long to read it
        sound = short and abs(int(digits)) < LARGEST_WHOLE
        need(sound, f"it holds the number {digits[:LONGEST_SHOWN]}, which is too large")
        return int(digits)

    try:
        tree = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=once,
            parse_constant=constant,
            parse_float=real_number,
            parse_int=whole_number,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [tree], 0
    while level:
        need(depth <= DEEPEST, "it is nested too deeply")
        parts = [one for one in level if isinstance(one, (dict, list))]
        level = [inner for part in parts for inner in (part.values() if isinstance(part, dict) else part)]
        depth += 1
    if HALF.search(content):
        json.dumps(tree, ensure_ascii=False).encode("utf-8")  # a text that cannot be written is a ValueError
    return tree


def converted(content: Any, kind: type[Kind]) -> Kind:
    """Return JSON content in a type; a ValueError says what is missing, unknown, of another type or out of range."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "'")) from error  # in backticks are parameters


def plain(value: Any) -> Any:
    """Return a value with its tuples as lists and its mappings as dicts, as JSON has them."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


@dataclass
class CodecState:
    """Saved content while it is built or read; ``sizes`` has the numbers of the shapes' names."""

    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def setting(self, name: str) -> Any:
        """Take out a setting."""
        need(name in self.settings, f"there is no setting {name!r}")
        return self.settings.pop(name)

    def array(self, name: str) -> npt.NDArray[Any]:
        """Take out an array."""
        need(isinstance(self.arrays.get(name), np.ndarray), f"there is no array {name!r}")
        return self.arrays.pop(name)

    def under(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """Take out the arrays whose names begin with a prefix, by the rest of their names."""
        names = [name for name in self.arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.arrays.pop(name) for name in names}

    def fits(self, shape: Sequence[int], wanted: Shape) -> bool:
        """Return whether a shape is the wanted one, and settle the names that are new."""
        return len(shape) == len(wanted) and all(
            want is None or (self.sizes.setdefault(want, size) if isinstance(want, str) else want) == size
            for size, want in zip(shape, wanted, strict=True)
        )


class FieldForm(ABC):
    """Form of one saved value: written into a state, and read from it with a ValueError where it is invalid."""

    @abstractmethod
    def save(self, name: str, value: Any, state: CodecState) -> None:
        """Put the value into the state."""

    @abstractmethod
    def load(self, name: str, state: CodecState) -> Any:
        """Take the value out of the state."""


@dataclass(frozen=True)
class Setting(FieldForm):
    """A JSON value of a type, which may have limits (:class:`msgspec.Meta`)."""

    length: str = ""
    """Name that shapes have for the length of a list."""
    kind: Any = None
    """The type; None for that of the field."""

    def save(self, name: str, value: Any, state: CodecState) -> None:
        """Put the value into the settings."""
        state.settings[name] = plain(value)

    def load(self, name: str, state: CodecState) -> Any:
        """Take the value out of the settings."""
        held = state.setting(name)
        try:
            value = converted(held, self.kind)
        except ValueError as error:
            raise ValueError(f"{name!r}: {shortened(str(error))}") from error
        fits = not self.length or state.fits((len(value),), (self.length,))
        need(fits, f"{name!r} is not as long as the others")
        return value


@dataclass(frozen=True)
class Array(FieldForm):
    """An array of a type, a shape and a range, ends included; NaN lies in no range, and a ``low`` of None is none."""

    dtype: str
    shape: Shape
    low: float | None = -LARGEST
    high: float = LARGEST
    optional: bool = False

    def save(self, name: str, value: Any, state: CodecState) -> None:
        """Put the value into the arrays; None of what is optional leaves no trace.

        Numbers of a smaller type, such as codes of groups that memory was saved for, get the type of the file.
        """
        if value is not None:
            widened = value.dtype.str != self.dtype and np.can_cast(value.dtype, self.dtype, "safe")
            state.arrays[name] = value.astype(self.dtype) if widened else value

    def load(self, name: str, state: CodecState) -> Any:
        """Take the value out of the arrays."""
        if self.optional and name not in state.arrays:
            return None
        array = state.array(name)
        right = array.dtype.str == self.dtype and state.fits(array.shape, self.shape)
        need(right, f"array {name!r} has not the type {self.dtype} and the shape {self.shape}")
        ranged = array.dtype.kind in "iuf" and self.low is not None
        inside = not ranged or bool(((array >= self.low) & (array <= self.high)).all())
        need(inside, f"array {name!r} holds a value that is not a number from {self.low} to {self.high}")
        return array


@dataclass(frozen=True)
class EndToEnd(FieldForm):
    """Several things of equal parts: their lengths as a setting, each part of all of them end to end as an array."""

    make: Callable[..., Any]
    lengths: str
    """Name of the setting that has the lengths."""
    arrays: Mapping[str, Array]
    """The parts, whose shapes are ``(None,)``."""
    many: str
    """Name that shapes have for the number of things."""
    sound: Callable[[Any], bool]

    def save(self, name: str, value: Any, state: CodecState) -> None:
        """Put lengths into the settings, and parts into the arrays."""
        first = next(iter(self.arrays))
        state.settings[self.lengths] = [int(getattr(one, first).size) for one in value]
        for part in self.arrays:
            state.arrays[part] = np.concatenate([getattr(one, part) for one in value])

    def load(self, name: str, state: CodecState) -> Any:
        """Take lengths and parts out, and cut the parts."""
        sizes = Setting(self.many, tuple[Annotated[int, msgspec.Meta(ge=1)], ...]).load(self.lengths, state)
        cuts = np.cumsum(sizes)[:-1]
        columns = [part.load(own, state) for own, part in self.arrays.items()]
        need(all(column.shape == (sum(sizes),) for column in columns), f"{self.lengths!r} do not add up")
        made = tuple(self.make(*parts) for parts in zip(*(np.split(a, cuts) for a in columns), strict=True))
        need(all(map(self.sound, made)), f"the parts of some of the {name!r} contradict each other")
        return made


@dataclass(frozen=True)
class Inner(FieldForm):
    """A thing or a mapping that has parts of its own, which are kept next to those of its owner."""

    make: Callable[..., Any]
    """Makes it of its parts, by their names."""
    parts: Mapping[str, FieldForm]

    def save(self, name: str, value: Any, state: CodecState) -> None:
        """Put the parts into the state."""
        for own, part in self.parts.items():
            part.save(own, value[own] if isinstance(value, Mapping) else getattr(value, own), state)

    def load(self, name: str, state: CodecState) -> Any:
        """Take the parts out of the state."""
        return self.make(**{own: part.load(own, state) for own, part in self.parts.items()})


class Saved(ABC):
    """Base of classes saved by their fields, whose annotations have their forms.

    A subclass with a ``kind`` of its own is found by it, in its base's ``kinds``, when a file is read.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            cls.kinds[cls.kind] = cls

    @classmethod
    @cache
    def parts(cls) -> Mapping[str, FieldForm]:
        """Return the form of every field that has one."""
        out = dict[str, FieldForm]()
        for name, hint in get_type_hints(cls, include_extras=True).items():
            for part in getattr(hint, "__metadata__", ()):
                if isinstance(part, FieldForm):
                    out[name] = Setting(part.length, hint) if isinstance(part, Setting) else part
        return out

    @property
    def sound(self) -> bool:
        """Whether parts that are each as declared fit together."""
        return True

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return JSON settings and named arrays, from which :meth:`from_state` makes an equal one."""
        state = CodecState()
        for name, part in self.parts().items():
            part.save(name, getattr(self, name), state)
        return state.settings, state.arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return what a saved state holds; an ArtifactError says which part is missing, too many or not as declared."""
        try:
            need(isinstance(settings, Mapping), f"{shown(settings)} are no settings")
            state = CodecState(dict(settings), dict(arrays))
            held = {name: part.load(name, state) for name, part in cls.parts().items()}
            extra = [*state.settings, *state.arrays]
            need(not extra, f"nothing is known of {', '.join(map(shown, extra[:LISTED]))}")
            made = cls(**held)
            need(made.sound, "they contradict each other")
        except ValueError as error:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together: {error}") from error
        return made
