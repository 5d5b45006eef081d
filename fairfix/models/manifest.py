"""Manifest: the form of an artifact's JSON, as structs that are written and held to what is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from fairfix.data.choices import ScoreScale, Task, Unseen
from fairfix.data.numeric_groups import Edges, rising
from fairfix.models.scored_source import read_changes
from fairfix.schema.common import Part

Texts = tuple[str, ...]


class PredictColumns(Part, frozen=True, kw_only=True):
    """Columns that prediction uses."""

    protected: Texts
    strata: Texts
    score: str | None
    id: str | None


class ScoreColumn(Part, frozen=True, kw_only=True, tag_field="kind", tag="column"):
    """Scores that come from a column."""

    name: str | None


class OwnModel(Part, frozen=True, kw_only=True, tag_field="kind", tag="features"):
    """Scores that the predictor makes itself."""

    names: Texts


class ModelFile(Part, frozen=True, kw_only=True, tag_field="kind", tag="file"):
    """Scores that a model file makes, perhaps averaged over changes."""

    name: str
    sha256: str
    features: Texts
    positive_label: Texts = ()
    average: Any = None

    def __post_init__(self) -> None:
        """Require changes that can be read."""
        if self.average is not None:
            read_changes(self.average)


class Predictor(Part, frozen=True, kw_only=True):
    """Predictor by its kind, which checks the settings."""

    kind: str
    settings: dict[str, Any]


class Policies(Part, frozen=True, kw_only=True):
    """Settings of prediction."""

    task: Task
    score_scale: ScoreScale
    threshold: float | None
    unseen: Unseen


class Randomization(Part, frozen=True, kw_only=True):
    """Scheme, key and row identity of random draws."""

    scheme: str
    key: str
    identity: dict[str, Literal["text", "integer", "number", "boolean"]]


class Manifest(Part, frozen=True, kw_only=True):
    """All of an artifact but its arrays."""

    method: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,100}\Z")]
    """A word that can be anywhere, such as in a comment of SQL."""
    parameters: dict[str, Any]
    predictor: Predictor
    columns: PredictColumns
    bands: dict[str, Edges] = field(default_factory=dict)
    """Edges of the bands of each column; none where each value is a group."""
    merge: dict[str, dict[str, str]] = field(default_factory=dict)
    base: ScoreColumn | OwnModel | ModelFile
    policies: Policies
    requires: dict[str, Any]
    randomization: Randomization
    facts: dict[str, Any]
    versions: dict[str, str]
    seed: int

    def __post_init__(self) -> None:
        """Require edges that rise."""
        rising(self.bands)
