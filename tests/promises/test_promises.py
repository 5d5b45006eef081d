"""Every promise on a few worlds: false at most as often as its level says, and said at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises.harness import SURE_OF_FEW, Promise, Tried, promises


@pytest.mark.slow(every=True)
@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.name)
def test_the_promise_holds(promise: Promise, tmp_path: Path) -> None:
    found = promise.in_worlds(range(promise.worlds), tmp_path)

    assert not promise.broken(found, SURE_OF_FEW), (
        f"{promise.sentence!r} was false {len(found.false)} of {found.said} times: "
        + "; ".join(found.false[:5])
    )
    assert found.said >= promise.must_say * promise.worlds, (
        f"{promise.sentence!r} was said {found.said} times"
    )


def test_a_false_certificate_is_seen() -> None:
    certificate = Promise("x", 0.0, 1, 1, 0.5, lambda rng, shell: Tried(1), "x")

    assert certificate.broken(Tried(1000, ("once",)))
    assert not certificate.broken(Tried(1000))


def test_few_worlds_show_nothing() -> None:
    """A promise is kept where the upper limit of what is false is allowed; of a certificate none can be."""
    interval, certificate = (
        Promise("x", level, 1, 1, 0.5, lambda rng, shell: Tried(1), "x") for level in (0.05, 0)
    )

    told = {said: interval.verdict(Tried(said)) for said in (0, 2, 58, 59)}
    assert told == {0: "never said", 2: "not shown", 58: "not shown", 59: "kept"}
    assert interval.verdict(Tried(100, ("miss",) * 5)) == "not shown"
    assert interval.verdict(Tried(100, ("miss",) * 20)) == "**broken**"
    assert certificate.verdict(Tried(10_000)) == "none false"


def test_an_interval_may_miss_as_often_as_it_says() -> None:
    interval = Promise("x", 0.05, 1, 1, 0.5, lambda rng, shell: Tried(1), "x")

    assert interval.broken(Tried(3, ("miss",) * 2), SURE_OF_FEW)
    assert not interval.broken(Tried(3, ("miss",)), SURE_OF_FEW)

    assert not interval.broken(Tried(100, ("miss",) * 8))
    assert interval.broken(Tried(100, ("miss",) * 20))
