"""The sections of a comparison of two models: the change of every quality and every gap, on the same people."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import in_percent
from fairfix.report.comparisons import LEADING
from fairfix.report.layout import Columns, Grid, Json, Section, read_and_used, show, signed, titled
from fairfix.report.repairs import percent, points, show_signed

CHANGES: Columns = {
    "number": lambda one: titled(one.get("comparison", one["id"])),
    "before": lambda one: show(one["old"]["value"]),
    "now": lambda one: show(one["new"]["value"]),
    "change": lambda one: show(None) if one["value"] is None else signed(one),
    "is": lambda one: direction(one),  # noqa: PLW0108  it is defined below
}

GOOD = ("accuracy", "square_loss", "absolute_loss")
"""The quality that the report opens with: the first that there is."""


def sections(result: Json, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of the JSON form of a comparison of two models."""
    old, new = map(_named, result["models"])
    yield Section(f"fairfix comparison of {new} with {old}", tuple(answer(result)), kind="answer")
    yield Section("Qualities, over everybody", (), (Grid.of(CHANGES, result["qualities"], 1, "Qualities"),))
    for attribute in dict.fromkeys(one["attribute"] for one in result["changes"]):
        shown = [one for one in result["changes"] if one["attribute"] == attribute]
        apart = {one["not_paired"] for one in shown if "not_paired" in one}
        lines = [
            "not paired, so with the interval of independent samples: "
            f"{', '.join(titled(one['comparison']) for one in shown if one.get('not_paired') == why)} ({why})"
            for why in sorted(apart)
        ]
        yield Section(
            f"Groups of {attribute}", tuple(lines), (Grid.of(CHANGES, shown, 1, f"Gaps of {attribute}"),)
        )
    if result["not_comparable"]:
        lines = [f"{one['id']}: {one['reason']}" for one in result["not_comparable"]]
        yield Section("Not comparable", tuple(lines))
    yield Section("Data and settings", tuple(_facts(result)), kind="facts")


def _named(model: Json) -> str:
    return f"{model['score']} ({model['source']})"


def answer(result: Json) -> Iterator[str]:
    """Yield what changes from one model to the other: the leading gap of every attribute, and the quality."""
    confidence = in_percent(result["settings"]["confidence"])
    for attribute in dict.fromkeys(one["attribute"] for one in result["changes"]):
        of = [one for one in result["changes"] if one["attribute"] == attribute]
        leading = next((one for name in LEADING for one in of if one["comparison"] == name), of[0])
        title = f"{titled(leading['comparison'])} [{attribute}]"
        yield _sentence(leading, title, _points_or_number(leading), confidence)
    quality = next((one for name in GOOD for one in result["qualities"] if one["id"] == name), None)
    if quality is not None:
        write = percent if quality["id"] == "accuracy" else show_signed
        yield _sentence(quality, METRICS[quality["id"]].title, write, confidence)
    yield (
        f"Both are judged on the same {result['data']['rows']['used']:,} people, and nothing was fitted; each interval "
        f"holds for itself ({confidence}), so of many changes one may look sure by chance."
    )


def _points_or_number(one: Json) -> Callable[..., str]:
    """Return how a gap is written: in points where it is of shares, else in units of the scores."""
    of = Comparison.parse(one["comparison"])
    return points if of.metric == "ks" or (of.kind == "difference" and of.entry.percent) else show_signed


def _sentence(one: Json, title: str, write: Callable[..., str], confidence: str) -> str:
    """Return a number with both models, and whether the interval of its change is on one side of 0."""
    title = title[0].upper() + title[1:]
    if one["value"] is None:
        return f"{title} is undefined with one of the models."
    sign = points if write in (points, percent) else show_signed
    text = f"{title} was {write(one['old']['value'])} and is {write(one['new']['value'])}"
    low, high = one["low"], one["high"]
    if low is None or high is None:
        return f"{text}; there is no interval of the change."
    sure = direction(one)
    verdict = f"it is {sure}, with {confidence} confidence" if sure else "whether it changed is not certain"
    return f"{text}; {verdict}: the change is from {sign(low, sign=True)} to {sign(high, sign=True)}."


def direction(one: Json) -> str:
    """Return whether a change is surely for the better or worse, or larger or smaller; empty where it is not sure."""
    low, high = one["low"], one["high"]
    way = "larger" if low is not None and low > 0 else "smaller" if high is not None and high < 0 else ""
    if not way or one.get("worse") is None:
        return way
    return "worse" if way == one["worse"] else "better"


def _facts(result: Json) -> Iterator[str]:
    yield read_and_used(result)
    yield "before: {}; now: {}".format(*map(_named, result["models"]))
    if match := result.get("paired"):
        yield (
            f"matched by {match['id']}; left aside: {match['only_in_baseline']:,} rows only with the first, "
            f"{match['only_now']:,} only with the second, {match['other_group']:,} with another group in each"
        )
    cut = result["settings"].get("threshold")
    if cut is not None:
        yield f"a score of at least {cut:g} is a positive decision, of both models"
