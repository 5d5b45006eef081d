"""States: counts to which each audit adds a batch of rows, and which reject the same rows a second time."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairfix.auditing.countfile import Batch, CountFile, Piece, packed, require_alike
from fairfix.data.atomic_write import check_writable
from fairfix.data.container import COUNTS, fingerprint, write_over
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import Source
from fairfix.data.row_hash import hashes_of
from fairfix.data.urls import is_dry, scheme_of, shown_url
from fairfix.errors import DataError, UsageError
from fairfix.models.identity import IDENTITY_TYPES, identities, identity_columns
from fairfix.tasks.count import counted
from fairfix.tasks.dataset import explaining, log, open_data
from fairfix.tasks.renewal import counted_rows, late, with_labels
from fairfix.tasks.request import OF_ROWS, AuditRequest, RenewalRequest

KEY = hashlib.blake2b(b"batch", digest_size=16).digest()
"""Key of the hashes of rows."""


@dataclass(frozen=True)
class GrowingState:
    """A state with the rows of an audit added, which :meth:`save` writes."""

    path: Path
    held: str | None
    """Hash of the file that it was read from; None for a new one."""
    content: CountFile
    request: AuditRequest
    """Request of an audit of the total."""
    waits: bool = False
    """Whether nothing was added, since no row has a label yet that the audit is about."""

    @classmethod
    def of(cls, request: AuditRequest, counts: CountFile | None) -> GrowingState:
        """Return the state of a request with its rows, or its ``counts``, added.

        Raises
        ------
        UsageError, DataError, ArtifactError
            The state is damaged, was counted with other settings, or contains these rows already.
        """
        path = _path_of(request.state)
        held = fingerprint(path) if path.exists() else None
        old = CountFile.load(path) if held else None
        if old is not None and not old.batches:
            raise UsageError(
                f"`state`: {path.name} has counts without batches, so rows could be added twice; name a new file"
            )
        batch, mark = _counted(request) if counts is None else (counts, _mark_of(counts))
        if counts is not None and (counts.batches or counts.share is not None):
            what = "a state" if counts.batches else "counts of a part of the rows"
            raise UsageError(f"`state`: the data is {what}; name the rows of a batch, or their counts")
        if isinstance(request, RenewalRequest) and late(request, batch):
            batch, request = with_labels(request, batch)
            return cls(path, held, old or batch, request, waits=True)
        if not batch.used:
            raise DataError(f"{batch.name} has no rows to add to {path.name}; name a file with rows")
        name, piece = batch.name, Piece.of(batch.counts())
        if old is not None:
            require_alike((path.name, old), (name, batch), "cannot be added")
            for i, (one, own) in enumerate(zip(old.batches, old.pieces, strict=True)):
                # hashes of IDs and of values cannot be compared, but the counts can
                other = _kind(one.fingerprint) != _kind(mark)
                if one.fingerprint == mark or (other and own.digest == piece.digest):
                    raise DataError(
                        f"the rows of {name} are in {path.name} already, as batch {i + 1} ({one.source}, "
                        f"{one.added}); to audit the total, run 'fairfix audit {path.name} --always-valid'. If they "
                        "are other rows with the same values, name an `id`"
                    )
        before = old or replace(batch, pieces=())
        total = replace(
            before,
            pieces=(*before.pieces, piece),
            sources=(path.name,),
            versions=tuple(sorted({*before.versions, *batch.versions})),
            batches=(
                *before.batches,
                Batch(name, datetime.now(UTC).replace(microsecond=0).isoformat(), mark),
            ),
        )
        return cls(path, held, total, request.without(OF_ROWS))

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self.waits:
            log.info("added nothing to %s: no row has a label yet", self.path.name)
            return
        write_over(self.path, packed(self.content), COUNTS, self.held)
        log.info("added batch %d to %s", len(self.content.batches), self.path.name)


def _path_of(state: Any) -> Path:
    """Return the file of a state."""
    if not isinstance(state, (str, os.PathLike)):
        raise UsageError(f"`state` takes a path, not a value of type {type(state).__name__}")
    if scheme_of(state):
        raise UsageError(
            f"`state={shown_url(os.fspath(state))}`: a state is a file on this machine; name a path"
        )
    if is_dry():
        raise UsageError("`dry_run` writes nothing; leave out `state`")
    path = Path(state)
    if path.exists() and not path.is_file():
        raise DataError(f"`state={path}` is not a regular file; name a file that is, or a new one")
    if not path.parent.is_dir():
        raise DataError(
            f"`state={path}`: there is no folder {path.parent}; create it, or name a file elsewhere"
        )
    check_writable(path)
    return path


def _counted(request: AuditRequest) -> tuple[CountFile, str]:
    """Return the counts of rows, and the hash of these."""
    if isinstance(request, RenewalRequest):
        counts, data = counted_rows(request)
    else:
        data = open_data(replace(request, id=None))
        counts = counted(data, cluster=request.cluster, threads=request.threads)
    source = data.unscored
    if request.id is not None:
        source.require([request.id])
    with explaining(data):
        return counts, fingerprint_of(source, request.id)


def fingerprint_of(source: Source, id_: str | None = None) -> str:
    """Return a hash of the rows of a source in any order: of their IDs, or else of all their values."""
    kinds = identity_columns(source.schema, DataSpec(ColumnRoles((), id=id_)))
    rows = total = 0
    for batch in source.batches(list(kinds), {name: IDENTITY_TYPES[kind] for name, kind in kinds.items()}):
        hashes = hashes_of(identities(batch.select(list(kinds)).columns, kinds), KEY)
        rows, total = rows + hashes.size, (total + int(hashes.sum())) % (1 << 64)
    return f"{f'ids of {id_}' if id_ else 'rows'}:{rows}-{total:016x}"


def _kind(mark: str) -> str:
    """Return what a hash is of."""
    return mark.rpartition(":")[0]


def _mark_of(counts: CountFile) -> str:
    """Return a hash of counts."""
    return f"counts:{hashlib.sha256(''.join(piece.digest for piece in counts.pieces).encode()).hexdigest()}"
