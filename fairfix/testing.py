"""Testing: a model's fairness as an assertion, for pytest and whatever else runs assertions."""

from __future__ import annotations

from typing import Any, Literal
from unittest import SkipTest

from fairfix.errors import UsageError
from fairfix.report.verdicts import gated, limit, sentence, summary
from fairfix.report.words import readable
from fairfix.tasks.audit import AuditResult, audit


def assert_fair(
    data: Any, *, undecided: Literal["fail", "skip", "pass"] = "fail", **parameters: Any
) -> AuditResult:
    """Audit a model and raise where a check fails.

    Parameters
    ----------
    data, parameters
        Those of :func:`fairfix.audit`, among them at least one ``check``.
    undecided
        What a check does that the data cannot decide: ``"fail"`` as one that fails, ``"skip"`` skips the test,
        ``"pass"`` does nothing.

    Returns
    -------
    AuditResult
        The audit; none of its checks failed.

    Raises
    ------
    AssertionError
        A check failed; the message says which, by how much and between whom.
    unittest.SkipTest
        Nothing failed, a check is undecided, and ``undecided="skip"``; pytest skips the test.
    FairfixError
        The audit did not run, or there is no check, so that nothing would be asserted.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not this one
    if undecided not in ("fail", "skip", "pass"):
        raise UsageError(f"`undecided={undecided}`: use fail, skip or pass")
    run: Any = audit  # takes its parameters from a request, which a type checker does not see
    result: AuditResult = run(data, **parameters)
    shown = gated(readable(result.content), "assert_fair")
    if not shown.checks:
        raise UsageError("nothing is asserted: give a `check`, such as 'dp.difference<=0.1'")
    failed, open_ = ([one for one in shown.checks if one.verdict == code] for code in ("fail", "undecided"))
    if not failed and (undecided == "pass" or not open_):
        return result
    lines = [f"{sentence(one)}. It {limit(one)}." for one in (*failed, *open_)]
    message = "\n".join([summary(shown), *lines])
    if undecided == "skip" and not failed:
        raise SkipTest(message)
    raise AssertionError(message)
