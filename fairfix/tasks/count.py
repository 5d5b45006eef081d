"""Count: rows as additive counts, and counts as data, in place of rows.

A file of counts is known by its content. Several are added up in the order given, so that what is made of them is what
is made of their rows together.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfix.auditing.suppression import withholding
from fairfix.data.choices import VALUED
from fairfix.data.container import NAME, kind_of
from fairfix.data.counts import SavedCounts
from fairfix.data.cutoffs import GroupThresholds, is_close
from fairfix.data.data_spec import DataSpec
from fairfix.data.merging import parse_merge
from fairfix.data.names import ValuedColumn
from fairfix.data.numeric_groups import PARTS, parse_bands, written
from fairfix.data.opening import paths_of
from fairfix.data.recognition import TEXT_ENDINGS, holds_manifest, table_endings
from fairfix.data.row_filter import parse_condition
from fairfix.data.row_hash import Share
from fairfix.data.storage import SCHEMES, FileLocation, find, local
from fairfix.data.streams import is_stream
from fairfix.data.urls import is_database, is_dry, name_of, scheme_of, shown_url
from fairfix.data.workers import workers_of
from fairfix.errors import DataError, FairfixWarning, UsageError
from fairfix.models.scored_source import ScoredSource
from fairfix.stats.geometric_noise import budget_of
from fairfix.tasks.dataset import (
    COLUMNS,
    READ_AS,
    Dataset,
    explaining,
    log,
    missing_as,
    open_data,
    said_of_unused,
)
from fairfix.tasks.request import (
    CountRequest,
    DataRequest,
    function_of,
    of_counts,
)

if TYPE_CHECKING:
    from fairfix.auditing.countfile import CountFile


def run_count(request: CountRequest) -> CountFile:
    """Count rows, or add up counts: all that an audit and a repair of scores need, without a row.

    The result is the counts, which ``save(path)`` writes as ``fairfix count`` does. They are data of
    ``fairfix.audit`` and ``fairfix.repair``, as their file is.

    Raises
    ------
    UsageError, DataError, ArtifactError
        Parameters do not go together, the rows cannot be counted, or counts cannot be added.
    """
    from fairfix.auditing.disclosure import suppressed, with_noise

    epsilon = None
    if request.private is not None:
        try:
            epsilon = budget_of(repr(request.private))
        except ValueError as error:
            raise UsageError(f"`private={request.private:g}`: {error}") from error
    with withholding(request.suppress_below, request.data):
        if (counts := counts_of(request.data)) is None:
            counts = _counted(request)
        else:
            request = of_counts(request)
            check_agreement(request, counts.data_spec)
            if least := request.suppress_below:
                counts = suppressed(counts, [counts.data_spec.columns.cell_keys], least)
    return counts if epsilon is None else with_noise(counts, epsilon)


def _counted(request: CountRequest) -> CountFile:
    """Return the counts of rows."""
    check_bands(request)
    said_of_unused(request)
    data = open_data(request if request.part else replace(request, id=None))
    share = None
    if request.part is not None:
        data, share = _shared(request, data, request.part)
    return counted(data, request.suppress_below, request.cluster, request.threads, share)


def counted(
    data: Dataset, least: int = 0, cluster: Any = None, threads: int | None = None, share: Share | None = None
) -> CountFile:
    """Return the counts of opened data, without groups of fewer rows than ``least``."""
    from fairfix.auditing.countfile import count
    from fairfix.auditing.disclosure import count_shown

    about: dict[str, Any] = {"inferred": data.inferred, "model": model_of(data), "share": share}
    with explaining(data), workers_of(cluster, threads) as workers:
        source = data.source.read_by(workers)
        return (
            count_shown(source, data.data_spec, least, **about)
            if least
            else count(source, data.data_spec, **about)
        )


REVEALED = "are values of single rows, including hidden ones, and the names of the bands would reveal them"
FIXED_BANDS = {
    "private": REVEALED,
    "suppress_below": REVEALED,
    "guarantee": "depend on these rows, so the groups would too, and the guarantee is for all people",
}
"""Parameters with which quantiles of the rows cut no groups, and why."""


def check_bands(request: DataRequest) -> None:
    """Raise a UsageError where groups may not depend on the rows and the edges of bands do."""
    for name, rule in parse_bands(request.bands).items():
        for other, why in FIXED_BANDS.items():
            if rule in PARTS and request.has(other):
                raise UsageError(
                    f"`bands={name}={rule}`: with `{other}` give the edges as numbers, such as "
                    f"`bands={name}=25,40,60`: {rule} {why}"
                )


def _shared(request: CountRequest, data: Dataset, text: str) -> tuple[Dataset, Share]:
    """Return the rows of a share; a model file scores them alone."""
    from fairfix.models.shares import SharedSource

    whole = data.unscored
    share = SharedSource(whole, data.data_spec, text, request.seed)
    log.info("counting part %s", share.share)
    if not share.share.by_id:
        log.info(
            "rows without an ID are identified by their values: equal rows are all in the same `part`; better "
            "name an `id`"
        )
    source = share if data.model is None else ScoredSource(share, data.model)
    return replace(data, source=source), share.share


def model_of(data: Dataset) -> dict[str, str]:
    """Return which file scored the rows; empty where they came with scores."""
    return {"file": name_of(str(data.model.path)), "sha256": data.model.identity} if data.model else {}


# ---------------------------------------------------------------------- counts as data

NAMED = (str, os.PathLike, SavedCounts)


def counts_of(data: Any) -> CountFile | None:
    """Return the counts that data is, added up; None where it has rows.

    ``data`` is what a request names: counts, files of them, a folder, a pattern or a URL, or a list of these.

    Raises
    ------
    UsageError, DataError, ArtifactError
        Counts are together with rows, named twice, damaged, or were not made alike.
    """
    several = isinstance(data, (list, tuple)) and data and all(isinstance(one, NAMED) for one in data)
    each = data if several else [data]
    files = [_files(one) for one in each]
    if not any(files):
        if len(each) > 1:
            raise UsageError(
                "several `data` are added if they are counts; name rows of several files by a folder or a pattern"
            )
        return None
    from fairfix.auditing.countfile import CountFile, merged, repeated

    if rows := [one for one, own in zip(each, files, strict=True) if not own]:
        if not (scheme_of(str(rows[0])) or Path(rows[0]).exists()):
            raise DataError(f"{rows[0]} does not exist")
        raise UsageError(
            f"{shown_url(os.fspath(rows[0]))} has rows, and the other `data` has counts; count its rows first, with "
            "'fairfix count'"
        )
    if is_dry():
        raise UsageError("`dry_run` is for databases; leave it out, since counts are read from a file")
    seen: set[str] = set()
    counts: list[tuple[str, CountFile]] = []
    for one in chain(*files):
        if isinstance(one, CountFile):
            counts.append((one.name, one))
            continue
        place = one if scheme_of(one) else os.path.realpath(one)
        if place in seen:
            raise UsageError(f"{shown_url(one)} is named twice; its rows would be counted twice")
        seen.add(place)
        counts.append((shown_url(one), CountFile.load(one)))
    if twins := repeated(counts):
        twice = f"{' and '.join(twins)} contain identical counts; were the same rows counted twice?"
        warnings.warn(FairfixWarning(twice, "same_counts"), stacklevel=2)
    return merged(counts)


def is_counts(data: Any) -> bool:
    """Tell whether data is counts, or names files of them."""
    return bool(_files(data))


def _files(data: Any) -> list[Any]:
    """Return the counts that data names, as they are or by their paths; empty where it is anything else."""
    if isinstance(data, SavedCounts):
        return [data]
    if not isinstance(data, (str, os.PathLike)) or is_database(data) or is_stream(os.fspath(data)):
        return []
    text = os.fspath(data)
    if scheme_of(text):
        return _remote(text)
    try:
        files = paths_of(text)
    except DataError:  # a folder without tables may have counts
        inside = sorted(Path(text).glob("[!._]*")) if Path(text).is_dir() else []
        files = [path for path in inside if path.is_file() and _of_counts(local(path))]
    if not files or not _of_counts(local(files[0])):
        return []
    if other := next((path for path in files if not _of_counts(local(path))), None):
        raise DataError(
            f"{text} contains counts ({files[0].name}) and other files ({other.name}); use a pattern that matches "
            "files of one kind"
        )
    return [text] if Path(text).is_file() else [os.path.relpath(path) for path in files]


def _remote(url: str) -> list[str]:
    """Return the files of counts that a URL names; they are looked at where its ending leaves it open."""
    name = name_of(url).lower()
    if scheme_of(url) not in SCHEMES or "." not in name or name.endswith((*table_endings(), *TEXT_ENDINGS)):
        return []
    places = find(url, lambda _: True)
    urls = [url] if len(places) == 1 else [place.shown for place in places]
    return urls if urls and all(map(_of_counts, places, urls)) else []


def _of_counts(place: FileLocation, path: str | None = None) -> bool:
    """Tell whether a file is one of counts, be it damaged."""
    return holds_manifest(place) and kind_of(path or place.path) != NAME


def protected_among(request: DataRequest, counts: CountFile) -> tuple[str, ...]:
    """Return the protected columns that are asked for, by default all of the counts; an error where some is not one."""
    own = counts.data_spec.columns.protected
    if absent := [name for name in request.protected if name not in own]:
        raise UsageError(
            f"`protected={absent[0]}`: the counts were made with {','.join(own)}; name some of these, or count the "
            "data again"
        )
    return tuple(request.protected) or own


def check_agreement(request: DataRequest, data_spec: DataSpec) -> None:
    """Raise where a parameter says something else than the counts were taken with."""
    cuts: Any = data_spec.group_thresholds or data_spec.thresholds
    cut = request.threshold
    # that of the counts was rounded to the type of the scores
    if data_spec.group_thresholds or isinstance(cut, GroupThresholds):
        same = isinstance(cut, GroupThresholds) and cut.is_close(data_spec.group_thresholds)
    else:
        same = cut is not None and bool(cuts) and is_close(cuts[0], cut)
    held = {name: getattr(data_spec.columns, name) for name in (*COLUMNS, "probability")}
    held |= {name: getattr(data_spec, name) for name in READ_AS}
    for part in VALUED:
        if (text := getattr(request, part)) is not None:
            compared = data_spec.label_threshold if part == "label" else ""
            levels = getattr(data_spec, f"positive_{part}")
            counted = ValuedColumn(str(held[part]), levels, compared)
            asked = ValuedColumn.parse(text, [counted.column], part)
            whole = counted if levels or compared else counted._replace(positive=("1",))
            held[part] = text if asked in (counted, ValuedColumn(counted.column)) else str(whole)
    held |= {"threshold": cut if same else cuts}
    if request.missing and any(
        getattr(data_spec, name) != value for name, value in missing_as(request.missing).items()
    ):
        raise UsageError(
            "`missing`: the counts treat missing entries in another way; leave it out, or count the data again"
        )
    for name, rule in parse_bands(request.bands).items():
        own, word = data_spec.bands.get(name), isinstance(rule, str)
        # which quantiles there were is not kept
        if own is None or (bool(own) != (rule in PARTS) if word else rule != own):
            edges = ",".join(map(written, own or ())) or "none"
            raise UsageError(
                f"`bands={name}`: in the counts, its bands begin at {edges}; leave it out, or count the data again"
            )
    if (merge := parse_merge(map(str, request.merge))) and merge != data_spec.merge:
        raise UsageError(
            "`merge`: the counts were made with other names, or none; leave it out, or count the data again"
        )
    if request.where is not None and str(parse_condition(request.where)) != data_spec.where:
        raise UsageError(
            f"`where`: the counts are of {data_spec.where or 'all rows'}; leave it out, or count the data again"
        )
    for name, value in held.items():
        wanted = getattr(request, name, None)
        if (name in request.explicit or request.has(name)) and wanted != value:
            shown, taken = (",".join(map(str, v)) if isinstance(v, tuple) else v for v in (wanted, value))
            raise UsageError(
                f"`{name}` is {shown}, but the counts were made with {taken or 'none'}; leave it out, or count the "
                "data again"
            )


count = function_of("count", CountRequest, run_count)
