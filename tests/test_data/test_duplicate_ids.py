"""Ids: none that repeats is missed, and texts that differ in anything are told apart."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fairfix.data import duplicate_ids
from hypothesis import example, given
from hypothesis import strategies as st

TEXTS = st.lists(st.text("ab\0é日", max_size=4), max_size=12)


@pytest.mark.parametrize("piece", [1, 7, duplicate_ids.PIECE])
def test_ids_repeat_where_two_are_equal(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, pieces and slices of any size; an empty text and a NUL are texts like others."""
    monkeypatch.setattr(duplicate_ids, "PIECE", piece)

    @example([["", "\0"], ["b"]])
    @example([["", "ab"], ["ab"]])
    @given(st.lists(TEXTS, max_size=3))
    def law(batches: list[list[str]]) -> None:
        arrays = [
            pa.array(["before", *texts, "behind"], pa.string()).slice(1, len(texts)) for texts in batches
        ]
        flat = [text for texts in batches for text in texts]
        assert duplicate_ids.may_repeat(arrays) == (len(set(flat)) < len(flat))

    law()
