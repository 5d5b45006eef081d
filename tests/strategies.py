"""What Hypothesis and loops over worlds draw: how many in a pull request, and how many in full.

``HYPOTHESIS_PROFILE`` chooses: ``project`` draws a fifth of the examples, of the worlds and of the parameters of slow
tests; ``full`` (``make test-full``) and ``explore`` draw all. A law that counts how often something happens has a fixed
number of worlds and does not ask here.
"""

from __future__ import annotations

import math
import os

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "project")

TIMES = int(os.environ.get("TIMES", "1"))
"""Factor of the examples, for a long run."""

SEED = os.environ.get("SEED", "20261122")
"""Seed of what the fuzzers draw."""


def examples(most: int) -> int:
    """Return how many examples of at most ``most`` the profile draws; a few are always drawn."""
    return most * TIMES if PROFILE != "project" else max(most // 5, min(most, 3))


def drawn(cases: int) -> int:
    """Return how many of the parameters of a slow test a pull request draws."""
    return min(cases, max(3, math.ceil(cases / 5)))


def load_profile() -> None:
    """Load the profile: no deadline, since the machine may be busy; the same examples each time, but to explore."""
    drawn = examples(settings.get_profile("default").max_examples)
    settings.register_profile("project", deadline=None, derandomize=True, max_examples=drawn)
    settings.register_profile("full", deadline=None, derandomize=True)
    settings.register_profile("explore", deadline=None, print_blob=True)
    settings.load_profile(PROFILE)
