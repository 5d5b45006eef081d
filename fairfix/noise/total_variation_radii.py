"""Which recorded group each true group is near, and how near in total variation (N0).

There may be more or fewer true groups than recorded ones: several true groups may be near one recorded group, and a
recorded group may be near none.

Source: S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with
noisy protected groups* (2020), appendix B.4, for groups of different numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairfix.data.names import listed, nearest
from fairfix.errors import DataError, UsageError
from fairfix.noise.bounds import valid_radius
from fairfix.noise.rates import Floats

Ints = npt.NDArray[np.int64]

NEAR = " near "
"""Between the names of a true and of a recorded group, in ``radius:``."""


@dataclass(frozen=True, eq=False)
class Balls:
    """True groups within total variation of recorded ones."""

    true: tuple[str, ...]
    home: Ints
    """Number of the recorded group that each true group is near, shape (J,)."""
    radii: Floats
    """Shape (J,)."""

    def ordered(self, true: Sequence[str]) -> Balls:
        """Return the balls in another order of the true groups."""
        at = [self.true.index(name) for name in true]
        return Balls(tuple(true), self.home[at], self.radii[at])

    def recorded(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the recorded group that each true one is near."""
        return tuple(names[k] for k in self.home)


def recorded_in(key: str, names: Sequence[str]) -> str:
    """Return the recorded group in a key of ``radius:``: ``TRUE near RECORDED``, or one name for both.

    It is the whole key, or else the shortest end after a ``near`` that is a name; the shortest of all where none is.
    """
    parts = key.split(NEAR)
    ends = [key, *(NEAR.join(parts[at:]) for at in range(len(parts) - 1, 0, -1))]
    return next((end for end in ends if end in names), parts[-1])


def balls_for(radii: Mapping[str, float], names: Sequence[str], column: str) -> Balls:
    """Return the balls of given radii, by ``TRUE near RECORDED`` or one name for both, in the order they are given.

    Where each true group has the name of a recorded one, they are in the order of the recorded ``names``.

    Raises
    ------
    DataError
        There is a single true group.
    UsageError
        A recorded group is not there, a true group is named twice, or nothing is said of a recorded group and no true
        group has another name.
    """
    homes = {key: recorded_in(key, names) for key in radii}
    for home in homes.values():
        if home not in names:
            near = nearest(home, names)
            raise UsageError(
                f"`noise=radius:...`: column {column!r} has no group {home!r}"
                f"{f' (did you mean {near[0]!r}?)' if near else ''}; it has {listed(names)}. A true group that has "
                "no recorded group of its name is written as TRUE near RECORDED=NUMBER"
            )
    true = {key: key.removesuffix(NEAR + home).strip() for key, home in homes.items()}
    for name in (twice := list(true.values())):
        if twice.count(name) > 1:
            raise UsageError(f"`noise=radius:...` names the true group {name!r} twice; give one radius")
    if all(key == home for key, home in homes.items()):
        for name in names:
            if name not in radii:
                raise UsageError(
                    f"`noise=radius:...` lacks the group {name!r} of column {column!r}: give its radius too, 1 "
                    "if nothing is known"
                )
        radii = {name: radii[name] for name in names}
    if len(radii) < 2:
        raise DataError(f"column {column!r} has only the group {names[0]!r}; there is nothing to compare")
    numbers = np.array([names.index(homes[key]) for key in radii], dtype=np.int64)
    return Balls(tuple(true[key] for key in radii), numbers, np.array(list(radii.values()), dtype=np.float64))


def balls_of(joints: Floats, true: Sequence[str], names: Sequence[str]) -> Balls:
    """Return balls that hold whatever the noise that fits one of several tables, joint masses (W, J, K).

    Where both have the same names a true group is near the recorded one of its name, else near that of the smallest
    radius.
    """
    far = np.stack(
        [valid_radius(joints, np.full(len(true), k)).max(0) for k in range(len(names))], axis=-1
    )  # (J, K)
    home = far.argmin(-1)
    if set(true) == set(names):
        home = np.array([names.index(name) for name in true])
    return Balls(tuple(true), home.astype(np.int64), far[np.arange(len(true)), home])
