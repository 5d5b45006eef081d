"""Counts at another threshold: as if the rows had been counted with it."""

from __future__ import annotations

import fairfix
import pytest

from tests.data import people


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.375, 0.5, 1 / 1024, 0.0])
@pytest.mark.parametrize("own", [None, 0.3, 0.25])
def test_an_edge_of_the_bins_is_as_good_as_the_threshold_of_the_counts(
    threshold: float, own: float | None
) -> None:
    """With weights, from two parts, whatever the counts were cut at; the audit is the same to the last digit."""
    frames = [people(300, seed).drop(columns=["p", "raw"]) for seed in (0, 1)]
    asked = {"protected": ["race", "sex"], "weight": "weight", "score": "score"}

    def counted(cut: float | None) -> list[fairfix.CountFile]:
        return [fairfix.count(frame, **asked, threshold=cut) for frame in frames]

    one, other = (fairfix.audit(counted(cut), threshold=threshold).to_dict() for cut in (own, threshold))
    for result in (one, other):
        del result["data"]
    assert one == other


def test_any_other_number_is_an_error() -> None:
    counts = fairfix.count(people(200), protected="race", score="score")
    for threshold in (0.3, 1.5, -0.25):
        with pytest.raises(fairfix.UsageError, match="threshold"):
            fairfix.audit(counts, threshold=threshold)
