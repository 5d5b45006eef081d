"""Results of tasks: their JSON form, and what it is rendered into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairfix.auditing.checks import exit_status
from fairfix.data.choices import Undecided


@dataclass(frozen=True, repr=False)
class Result:
    """A result of a task; ``content`` is its JSON form, of the schema that it names."""

    content: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the report as text."""
        return self.render("text")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(verdict={self.verdict!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(self.content)

    def to_json(self) -> str:
        """Return the text that the format ``json`` prints."""
        return self.render("json")

    def render(self, format: str, **settings: Any) -> str:  # noqa: A002  the option's word
        """Return the result in a format of :data:`fairfix.report.FORMATS`; settings are those of the format."""
        from fairfix.report import renderer

        return renderer(format)(self.content, **settings)

    @property
    def verdict(self) -> str | None:
        """The worst verdict of the checks; None where nothing was gated."""
        verdict: str | None = self.content.get("verdict")
        return verdict

    def exit_status(self, undecided: Undecided = "exit3") -> int:
        """Return the status of the command: 1 for a failed check, 3 for an undecided one unless otherwise asked."""
        return int(exit_status((check["verdict"] for check in self.content.get("checks", ())), undecided))
