"""A network under the metric of SenSeI's paper, by weight: ``benchmarks/sensei_weights.py [SPLITS]``.

The paper's metric is free along the group and along the direction of a logistic regression that predicts it.
Columns and splits are those of ``sensei.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from unittest.mock import patch

from fairfix.methods.sensei import Sensei
from fairfix.methods.sensei.regularized import Regularized
from fairfix.models.trace import Note

from sensei import Row, adult, judged, means, repaired, split, table_of

SPLITS = 10

RHO = (1.0, 10.0, 40.0, 160.0)
"""Weights of the regularizer; 40 is the paper's."""

METRIC = "learned(by=logistic)"
"""Directions of logistic regressions for gender and race, which cost nothing, as flips of both do not."""


def rows(seed: int) -> Iterator[tuple[str, Row]]:
    """Yield the rows of one split."""
    train, test = split(adult(), seed)
    fit, held = table_of(train), table_of(test)
    base = float(train["income"].mean())
    for rho in RHO:
        method = Sensei(solver="regularizer", learner="network", rho=rho, similar=METRIC)
        with patch.object(Regularized, "_cost", lambda *_: Note("", "cost")):  # two more fits, for a note
            found, seconds = repaired(fit, method, aware=True)
        yield f"ours: network, rho {rho:g}", judged(held, found.predict, base, seconds)
        print(f"split {seed}: rho {rho:g}", file=sys.stderr)


def main() -> None:
    """Print the table."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS
    print("### By weight, under the metric of the paper\n")
    print(
        f"Adult, {many} random 80/20 splits, test rows: our network under the paper's metric, by weight. Flips of "
        "gender and race cost nothing. Steps along the directions of logistic regressions that predict them cost "
        "nothing either.\n"
    )
    means(row for seed in range(many) for row in rows(seed))


if __name__ == "__main__":
    main()
