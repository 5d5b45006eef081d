"""Draws: a number in [0, 1) per row, from a keyed hash of what identifies the row.

Where an id identifies rows, a row's draw depends on the id alone. Where the row's own values do, equal rows would share
one, and a rule that treats a share ``p`` of them in one way would treat all or none so. Therefore the occurrences of a
row are counted, and the ``j``-th (from 0) of equal rows gets the hash of the row plus the ``j``-th number of van der
Corput's sequence, modulo 1. So the draws of equal rows lie evenly: of ``m`` of them ``m p`` are below ``p``, give or
take ``2 (log2(m) / 3 + 1)`` (the bound of Béjian and Faure, 1977, at both ends of the shifted interval).
Which of equal rows gets which draw depends on their order, and on nothing else.

A share of the rows is those whose hash, with a key of the seed, lies in an interval. So a person is in one of two
shares whose intervals do not meet, in whatever file, order or place the row comes. Rows without an id are known by
their own values, so equal rows are of one share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from fairfix.data.canonical import canonical
from fairfix.data.counts import Bools, Floats
from fairfix.errors import UsageError

Hashes = npt.NDArray[np.uint64]

BITS = np.uint64(53)
"""Bits of a draw: as many as a float from 0 to 1 has."""

SEPARATOR = b"\x1f"
"""Between the entries of an identity: the unit separator."""

Seen = dict[int, int]
"""Number of occurrences of each row, by its hash."""


def hashes_of(identities: Iterable[bytes], key: bytes) -> Hashes:
    """Return BLAKE2b of 8 bytes of each identity, read big-endian and cut to the upper 53 bits, shape (n,)."""
    begun = hashlib.blake2b(digest_size=8, key=key).copy  # three quarters of the time of a new one for each
    out = []
    for one in identities:
        hashed = begun()
        hashed.update(one)
        out.append(hashed.digest())
    whole = b"".join(out)
    return np.asarray(np.frombuffer(whole, dtype=">u8").astype(np.uint64) >> np.uint64(11))


def shared(hashes: Hashes) -> Floats:
    """Return the draws of rows with ids, shape (n,): one id, one draw."""
    return np.asarray(hashes.astype(np.float64) * 2.0**-53)


def draw_of(identity: bytes, key: bytes) -> float:
    """Return the draw of one row, as :func:`shared` does."""
    whole = hashlib.blake2b(identity, digest_size=8, key=key).digest()
    return (int.from_bytes(whole, "big") >> 11) * 2.0**-53


def apart(hashes: Hashes, seen: Seen) -> Floats:
    """Return the draws of rows with hashes of 53 bits of their own values, shape (n,): equal rows are told apart.

    The occurrences in ``seen`` are counted on.
    """
    own, place, many = np.unique(hashes, return_inverse=True, return_counts=True)
    before = np.zeros(own.size, dtype=np.uint64)
    for i, (row, more) in enumerate(zip(own.tolist(), many.tolist(), strict=True)):
        before[i] = seen.get(row, 0)
        seen[row] = int(before[i]) + more
    whole = (np.uint64(1) << BITS) - np.uint64(1)
    return shared((hashes + van_der_corput(before[place] + occurrences(hashes))) & whole)


def occurrences(hashes: Hashes) -> Hashes:
    """Return the number of each row among those of its hash, in their order, shape (n,), from 0."""
    order = np.argsort(hashes, kind="stable")
    first, many = np.unique(hashes[order], return_index=True, return_counts=True)[1:]
    out = np.empty(hashes.size, dtype=np.uint64)
    out[order] = np.arange(hashes.size) - np.repeat(first, many)
    return out


def van_der_corput(number: Hashes) -> Hashes:
    """Return the 53 lowest bits of numbers in reverse order, shape (n,): 1, 2, 3 give 1/2, 1/4, 3/4 of 2^53."""
    out = np.zeros(number.shape, dtype=np.uint64)
    rest, one, place = number.copy(), np.uint64(1), BITS
    while rest.any() and place:
        place -= one
        out |= (rest & one) << place
        rest >>= one
    return out


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Increment of SplitMix64: 2^64 over the golden ratio."""


def mixed(number: Hashes) -> Hashes:
    """Return numbers whose bits each depend on all bits (SplitMix64 of Steele, Lea and Flood, 2014), shape (n,)."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(number ^ (number >> np.uint64(31)))


def decide(
    chance: Floats, identities: Iterable[bytes], key: bytes, seen: Seen | None = None
) -> npt.NDArray[np.int8]:
    """Return decisions for probabilities, shape (n,): 1 where the row's draw is below its probability.

    ``identities`` has one for each row whose probability lies strictly between 0 and 1, in order; ``key``, of at
    most 64 bytes, is the hash's; ``seen`` is as in :func:`draws_of`.
    """
    return decided(chance, draws_of(identities, key, seen))


def decided(chance: Floats, draws: Floats) -> npt.NDArray[np.int8]:
    """Return the same from the draws of the rows that are left to chance, in order."""
    out = (chance >= 1.0).astype(np.int8)
    open_rows = np.flatnonzero(is_random(chance))
    assert draws.size == open_rows.size
    out[open_rows] = draws < chance[open_rows]
    return out


def draws_of(identities: Iterable[bytes], key: bytes, seen: Seen | None = None) -> Floats:
    """Return a number in [0, 1) per identity, shape (n,).

    Rows of one identity share it; with ``seen``, where the identity is made of a row's values, they are told apart by
    their occurrence, which is counted on there.
    """
    hashes = hashes_of(identities, key)
    return shared(hashes) if seen is None else apart(hashes, seen)


HELD = 1 << 20
"""Distinct draws that are kept to find those that rows share: 16 MB."""


class SharedDraws:
    """Number of rows that share their draw with another, in memory that does not grow with the rows.

    Exact for up to ``held`` distinct draws. With more, only those below a bound are kept, which is halved as often as
    needed: the rows of an id are all looked at or none, and which are depends on the hash alone, so their number over
    the share looked at is an unbiased estimate (the sampling of Gibbons, 2001).
    """

    def __init__(self, held: int = HELD) -> None:
        self.held, self.rows, self.below = held, 0, 1.0
        self._draws, self._many = np.empty(0), np.empty(0, dtype=np.int64)
        self._waiting: list[Floats] = []

    def add(self, draws: Floats) -> None:
        """Count the draws of more rows, shape (n,)."""
        self.rows += draws.size
        self._waiting.append(draws[draws < self.below] if self.below < 1.0 else draws)
        if sum(map(len, self._waiting)) >= self.held:
            self._merge()

    @property
    def exact(self) -> bool:
        """Whether :attr:`alike` is a count, and no estimate."""
        self._merge()
        return self.below == 1.0

    @property
    def alike(self) -> int:
        """Rows that share their draw with another."""
        self._merge()
        return round(int(self._many[self._many > 1].sum()) / self.below)

    def _merge(self) -> None:
        own, many = np.unique(np.concatenate([np.empty(0), *self._waiting]), return_counts=True)
        self._waiting.clear()
        draws, many = np.concatenate([self._draws, own]), np.concatenate([self._many, many])
        order = np.argsort(draws, kind="stable")
        draws, many = draws[order], many[order]
        first = np.flatnonzero(np.concatenate([[True], draws[1:] != draws[:-1]])[: draws.size])
        self._draws = draws[first]
        self._many = np.add.reduceat(many, first) if first.size else many
        while self._draws.size > self.held:
            self.below /= 2
            kept = self._draws < self.below
            self._draws, self._many = self._draws[kept], self._many[kept]


def is_random(chance: Floats) -> Bools:
    """Return which probabilities leave the decision to chance; NaN does not."""
    return (chance > 0.0) & (chance < 1.0)


def identity_of(entries: Sequence[Any]) -> bytes:
    """Return the identity of a row from its entries, the same for equal entries in any file format.

    Each is written as :func:`fairfix.data.canonical.canonical` says, a missing entry as NUL; :data:`SEPARATOR` is
    between them.
    """
    return SEPARATOR.join(map(entry_of, entries))


def entry_of(value: Any) -> bytes:
    """Return an entry as an identity has it."""
    if value is None or value != value:  # NaN differs from itself
        return b"\x00"
    return canonical(value).encode()


class Share(Struct, frozen=True, forbid_unknown_fields=True):
    """Rows whose hash lies in [low, high)."""

    low: Annotated[float, Meta(ge=0)]
    high: Annotated[float, Meta(le=1)]
    columns: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Columns that are hashed: the id, or all that are neither label nor weight."""
    by_id: bool
    seed: Annotated[int, Meta(ge=0)]

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

    def __post_init__(self) -> None:
        """Require rows in it."""
        if not self.low < self.high:
            raise ValueError("a `part` is empty")

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
