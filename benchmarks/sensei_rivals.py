"""SenSeI's rivals, trained here on Adult: ``benchmarks/sensei_rivals.py [SPLITS]``.

A plain network, one with counterfactual logit pairing (CLP), and SenSR and SenSeI by inFairness, beside ours on the
same splits. All networks have one hidden layer of 100, balanced batches of 1,000 and Adam at 0.001. The sensitive
directions are the flips of gender and race, and for "directions" those of logistic regressions of gender and race
besides, as in the papers. Columns as in ``sensei.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from fairfix.data.table import Table
from fairfix.individual.flips import flipped, protected_flips
from fairfix.methods.sensei import Sensei
from fairfix.models.features import Features
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from published import published, row_of
from sensei import (
    BATCH,
    FIGURES,
    HIDDEN,
    NAMES,
    PAIR,
    Floats,
    Row,
    adult,
    judged,
    means,
    repaired,
    split,
    table_of,
)

SPLITS = 2
PAIRING = (1.0, 10.0)
"""Weights of the squared difference of logits of a row and its flip."""

STEPS = {"network": 3000, "SenSR": 1000, "SenSeI": 1500}
"""Iterations: of ours and of CLP as many as ours has by default, of inFairness what a few minutes allow."""


class Data:
    """The training rows as tensors, and the matrix of any other rows."""

    def __init__(self, fit: Table) -> None:
        import torch

        self.features = Features.learn(fit, NAMES, ("sex", "race"))
        X = self.features.matrix(fit)
        self.label = np.asarray(fit.rows.label)
        self.X = torch.tensor(X, dtype=torch.float32)
        self.y = torch.tensor(self.label[:, None], dtype=torch.float32)
        self.flips = [
            torch.tensor(self.features.matrix(flipped(fit, flip)), dtype=torch.float32)
            for flip in protected_flips(fit, ("sex", "race"))
        ]
        moves = np.concatenate([(one - self.X).numpy()[:2000] for one in self.flips])
        self.directions = moves[np.abs(moves).sum(axis=1) > 0]
        own = np.abs(self.directions).sum(axis=0) > 0
        learned = []
        for name in ("sex", "race"):
            known = X.copy()
            known[:, own] = 0.0
            model = LogisticRegression(max_iter=1000).fit(known, fit.groups([name]).codes)
            learned.append(model.coef_[0] / np.linalg.norm(model.coef_[0]))
        self.learned = np.stack(learned)

    def batches(self, seed: int) -> Iterator[np.ndarray]:
        """Yield numbers of rows, as many of either label, without end."""
        rng = np.random.default_rng(seed)
        sides = [np.flatnonzero(self.label == label) for label in (0, 1)]
        while True:
            yield np.concatenate([rng.choice(side, BATCH // 2) for side in sides])

    def basis(self, *, learned: bool) -> Floats:
        """Return orthonormal columns that span the sensitive directions."""
        moves = np.concatenate([self.directions, self.learned] if learned else [self.directions])
        _, sizes, basis = np.linalg.svd(np.unique(moves, axis=0), full_matrices=False)
        return basis[sizes > 1e-6 * sizes[0]].T  # what is left after rounding to single precision


def trained(
    data: Data, kind: str, seed: int, *, pairing: float = 0.0, learned: bool = False
) -> Callable[[Table], Floats]:
    """Return the probabilities of a network that was trained in one of the ways."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = torch.nn.Sequential(
        torch.nn.Linear(data.X.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
    )
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    rng = np.random.default_rng(seed)
    fair = None if kind == "network" else _by_infairness(kind, network, data.basis(learned=learned))
    for _, rows in zip(range(STEPS[kind]), data.batches(seed), strict=False):
        optimizer.zero_grad()
        if fair is not None:
            fair.train()
            fair(data.X[rows], data.y[rows]).loss.backward()
        else:
            score = network(data.X[rows])
            lost = loss(score, data.y[rows])
            if pairing:
                other = network(data.flips[rng.integers(len(data.flips))][rows])
                lost = lost + pairing * ((score - other) ** 2).mean()
            lost.backward()
        optimizer.step()

    def predict(table: Table) -> Floats:
        with torch.no_grad():
            score = network(torch.tensor(data.features.matrix(table), dtype=torch.float32))
        return np.asarray(torch.sigmoid(score)[:, 0].numpy(), dtype=np.float64)

    return predict


def _by_infairness(kind: str, network: Any, basis: Floats) -> Any:
    """Return a trainer of inFairness, with epsilon 0.001, rho 40, rates 0.001 (of lambda 1)."""
    import torch
    from inFairness.distances import SensitiveSubspaceDistance, SquaredEuclideanDistance
    from inFairness.fairalgo import SenSeI, SenSR

    loss = torch.nn.functional.binary_cross_entropy_with_logits
    apart, between = SensitiveSubspaceDistance(), SquaredEuclideanDistance()
    apart.fit(torch.tensor(np.ascontiguousarray(basis), dtype=torch.float32))
    between.fit(num_dims=1)
    if kind == "SenSeI":
        return SenSeI(network, apart, between, loss, 40.0, 1e-3, 100, 1e-3)
    return SenSR(network, apart, loss, 1e-3, 1.0, 1e-3, 50, 1e-3)


def rows(seed: int) -> Iterator[tuple[str, Row]]:
    """Yield the rows of one split, the same as in ``sensei.py``."""
    train, test = split(adult(), seed)
    fit, held = table_of(train), table_of(test)
    data = Data(fit)
    rivals = [("plain network", "network", 0.0, False)]
    rivals += [(f"CLP, {weight:g}", "network", weight, False) for weight in PAIRING]
    for kind in ("SenSR", "SenSeI"):
        rivals += [
            (f"{kind} by inFairness", kind, 0.0, False),
            (f"{kind} by inFairness, directions", kind, 0.0, True),
        ]
    for title, kind, pairing, learned in rivals:
        start = time.process_time()
        with threadpool_limits(1):
            predict = trained(data, kind, seed, pairing=pairing, learned=learned)
        yield title, judged(held, predict, 0.5, time.process_time() - start)
        print(f"split {seed}: {title}", file=sys.stderr)
    base = float(train["income"].mean())
    for title, method, where, aware in (
        ("ours: network, rho 10", Sensei(solver="regularizer", learner="network", rho=10.0), base, True),
        (
            "ours: network, rho 10, spouses declared",
            Sensei(solver="regularizer", learner="network", rho=10.0, similar=PAIR),
            base,
            True,
        ),
        (
            "ours: linear, rho inf, spouses declared, pooled means learned",
            Sensei(solver="regularizer", rho=np.inf, similar=f"{PAIR}; learned(by=pooled)"),
            base,
            True,
        ),
        (
            "ours: equal-rates 0.02, linear, spouses declared",
            Sensei(solver="equal-rates", slack=0.02, similar=PAIR),
            0.5,
            False,
        ),
        (
            "ours: equal-rates 0.02, trees, spouses declared",
            Sensei(solver="equal-rates", slack=0.02, similar=PAIR, learner="trees"),
            0.5,
            False,
        ),
    ):
        found, seconds = repaired(fit, method, aware=aware)
        yield title, judged(held, found.predict, where, seconds)


def main() -> None:
    """Print the table."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS
    print("### Rivals, trained here\n")
    try:
        import inFairness  # noqa: F401  whether it is there
        import torch  # noqa: F401  whether it is there
    except ImportError as error:
        print(f"Not run: {error}. The extra `bench` brings inFairness.")
        return
    print(
        f"Adult, {many} of the splits above, one hidden layer of {HIDDEN}, balanced batches of {BATCH:,}, Adam at "
        f"0.001; {STEPS['network']:,} iterations of plain network and CLP (behind the comma the weight of squared "
        f"differences of logits), {STEPS['SenSR']:,} of SenSR with 50 auditor steps, {STEPS['SenSeI']:,} of SenSeI "
        f"with 100 and rho 40. Sensitive are the flips of gender and race; *directions*: those of logistic regressions "
        "besides.\n"
    )
    means(row for seed in range(many) for row in rows(seed))
    print(
        "\n**The paper's own (Table 3)**, of other splits; figures with an asterisk are quoted from memory.\n"
    )
    print(f"| row of the paper | {' | '.join(FIGURES)} |\n|---|{'---|' * len(FIGURES)}")
    print("\n".join(paper()))


def paper() -> Iterator[str]:
    """Yield the paper's rows, a figure that is recalled with an asterisk."""
    for name in dict.fromkeys(one.row for one in published("sensei", "Table 3")):
        said = row_of("sensei", "Table 3", name)
        cells = []
        for column in FIGURES:
            value = f"{100 * float(said[column]):.1f}" if column == "BA" else f"{float(said[column]):.3f}"
            cells.append(value + ("" if said[column].origin == "copied" else "*"))
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
