"""Cutoffs as users write them: the number of rows to select."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fairfix.errors import UsageError


@dataclass(frozen=True)
class Capacity:
    """Largest number of rows to select, or largest percentage of all rows."""

    number: float
    percent: bool = False

    @classmethod
    def parse(cls, value: Any) -> Capacity:
        """Read ``500`` or ``10%``; a UsageError where it is neither."""
        text = str(value).strip()
        percent = text.endswith("%")
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        right = 0 < number <= 100 if percent else number >= 1 and number.is_integer()
        if not right or math.isinf(number):
            hint = f"; for a fraction of the rows write {100 * number:g}%" if 0 < number < 1 else ""
            raise UsageError(
                f"`top={text}` is neither a whole number of rows, such as 500, nor a percentage up to 100%, such as "
                f"10%{hint}"
            )
        return cls(number, percent)

    def most(self, total: float) -> float:
        """Return the largest size of those selected out of all."""
        return total * self.number / 100 if self.percent else self.number

    def __str__(self) -> str:
        return f"{self.number:.15g}{'%' * self.percent}"
