"""Splits of rows by the hash of their identity, and by nothing else.

The hash of a row's identity, with a key of the seed, is a number in [0, 1); a share is the rows whose number lies in
an interval. So a person is in one of two shares whose intervals do not meet, in whatever file, order or place the row
comes. Rows without an id are known by their own values, so equal rows are of one share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairfix.data import codec
from fairfix.data.counts import Bools
from fairfix.data.row_hash import hashes_of, shared
from fairfix.errors import UsageError


@dataclass(frozen=True)
class Share:
    """Rows whose hash lies in [low, high)."""

    low: float
    high: float
    columns: tuple[str, ...]
    """Columns that are hashed: the id, or all that are neither label nor weight."""
    by_id: bool
    seed: int

    @classmethod
    def parse(cls, text: str, columns: tuple[str, ...], *, by_id: bool, seed: int) -> Share:
        """Read ``0:0.7``."""
        try:
            low, high = map(float, text.split(":"))
        except ValueError:
            raise UsageError(f"`part={text}`: write it as FROM:TO, such as 0:0.7") from None
        if not 0 <= low < high <= 1:
            raise UsageError(f"`part={text}`: FROM must be below TO, and both between 0 and 1")
        return cls(low, high, columns, by_id, seed)

    @classmethod
    def of_state(cls, value: Any) -> Share:
        """Return the share of a saved state, or raise a ValueError."""
        held = codec.record(
            low=codec.real(0.0, codec.BELOW_1),
            high=codec.real(codec.ABOVE_0, 1.0),
            columns=codec.list_of(codec.text, least=1),
            by_id=codec.truth,
            seed=codec.whole(),
        )(value)
        codec.need(held["low"] < held["high"], "a `part` is empty")
        return cls(**held)

    def __str__(self) -> str:
        """Return the share in words."""
        what = f"column {self.columns[0]!r}" if self.by_id else "all values of a row except label and weight"
        return f"{self.low:g}:{self.high:g} by the hash of {what}, seed {self.seed}"

    def holds(self, identities: Iterable[bytes]) -> Bools:
        """Return which identities are in the share, shape (n,)."""
        key = hashlib.blake2b(str(self.seed).encode(), digest_size=16, person=b"fairfix-share").digest()
        place = shared(hashes_of(identities, key))
        return (place >= self.low) & (place < self.high)

    def apart_from(self, other: Share) -> str:
        """Return why two shares may have rows in common; empty where they have none."""
        if (self.columns, self.by_id, self.seed) != (other.columns, other.by_id, other.seed):
            return f"they use different hashes ({self}; {other})"
        if self.low < other.high and other.low < self.high:
            return f"`part={self.low:g}:{self.high:g}` and `part={other.low:g}:{other.high:g}` overlap"
        return ""
