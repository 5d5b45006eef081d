"""The sections of a comparison of methods: settings, and a table for each gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairfix.report.layout import Columns, Grid, Interval, Json, Section, interval, pairs, read_and_used


def sections(result: Json, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of a comparison's JSON form."""
    yield Section(f"fairfix comparison on {result['data']['source']}", tuple(_compare_facts(result)))
    points = [point for point in result["points"] if "failure" not in point]
    qualities = dict.fromkeys(name for point in points for name in point["qualities"])
    for gap in dict.fromkeys(name for point in points for name in point["gaps"]):
        chosen = [point for point in points if gap in point["gaps"]]
        shown = [name for name in qualities if any(name in point["qualities"] for point in chosen)]
        columns: Columns = {
            "method": "title",
            "slack": slack_of,
            "gap": _gap_of(gap),
            **{name: _quality_of(gap, name) for name in shown},
            "random": lambda point: f"{point['randomized']:.1%}",
            "uses group": lambda point: "yes" if point["protected_at_predict"] else "no",
        }
        yield Section(gap, (), (Grid.of(columns, chosen, 2, gap),), "gap")
    failures = [(point, point["failure"]) for point in result["points"] if "failure" in point]
    notes = [(point, note) for point in points for note in point["notes"]]
    lines = [f"{point['title']}, slack {point['slack']}: {text}" for point, text in (*failures, *notes)]
    if lines:
        yield Section("Notes", tuple(dict.fromkeys(lines)))


def _compare_facts(result: Json) -> Iterator[str]:
    split, settings = result["split"], result["settings"]
    yield (
        f"{read_and_used(result)}: {split['fit']:,} to fit, {split['holdout']:,} held out (seed {settings['seed']})"
    )
    yield "all numbers are of held-out rows; * marks the frontier: no other point has a smaller gap and better quality"
    for contender in result["contenders"]:
        yield f"{contender['title']}: {pairs(contender['parameters'])}"
    noise = settings.get("noise")
    if noise:
        yield (
            f"worst cases of true groups are over any noise that fits {noise['table']} ({noise['assumption']}), with "
            "an upper limit; all else is by recorded group"
        )


def slack_of(point: Json) -> str:
    """Return the slack of a point of a comparison; a model as it is has none."""
    return "" if point["slack"] is None else str(point["slack"])


def _gap_of(gap: str) -> Callable[[Json], str]:
    return lambda point: interval(point["gaps"][gap])


def _quality_of(gap: str, name: str) -> Callable[[Json], str]:
    """Return the cell of a quality, with a star where the point is on the frontier."""

    def cell(point: Json) -> str:
        mark = "*" if f"{gap}|{name}" in point["front"] else ""
        return Interval(interval(point["qualities"][name]) + mark) if name in point["qualities"] else ""

    return cell
