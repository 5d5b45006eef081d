"""What only some systems have is not needed: the commands run where it is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOANS = str(ROOT / "sample_data" / "loans.parquet")

WITHOUT = """
import json, os, signal, sys
modules, names, locks = json.loads(sys.argv[1])

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in modules:
            raise ImportError(f"there is no {name}")

sys.meta_path.insert(0, Missing())
for module in modules:
    sys.modules.pop(module, None)
for space in (os, signal):
    for name in names.split():
        vars(space).pop(name, None)
if not locks:
    import fairfix.data.atomic_write

    fairfix.data.atomic_write.fcntl = None
from fairfix.__main__ import main

statuses = []
for arguments in json.loads(sys.argv[2]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        statuses.append(ended.code or 0)
print("\\n" + json.dumps(statuses))
"""

WINDOWS = (
    ["resource", "pwd", "grp", "termios"],
    """
    O_TMPFILE O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_CLOEXEC fchmod fchown chown getuid geteuid getgid fork killpg
    mkfifo sched_getaffinity sysconf pread posix_fadvise statvfs nice SIGPIPE SIGHUP SIGALRM SIGKILL SIGQUIT SIGXCPU
    setitimer alarm pthread_sigmask siginterrupt
    """,
    False,
)
MACOS = ([], "O_TMPFILE sched_getaffinity posix_fadvise", True)


@pytest.mark.slow
@pytest.mark.parametrize("system", [WINDOWS, MACOS], ids=["windows", "macos"])
def test_the_main_job_needs_no_linux(system: tuple[list[str], str, bool], tmp_path: Path) -> None:
    """Audit, repair, predict, export and count, without modules, constants and functions of POSIX or Linux."""
    commands = [
        ["audit", LOANS, "--protected", "race", "--out", "json=a.json", "--check", "dp.difference<=0.1"],
        ["report", "a.json", "--out", "html=a.html"],
        ["repair", LOANS, "--protected", "race", "--method", "ramp", "-o", "r.fairfix"],
        ["predict", "r.fairfix", LOANS, "-o", "decided.csv"],
        ["export", "r.fairfix", "--to", "sql", "-o", "rule.sql"],
        ["count", LOANS, "--protected", "race", "-o", "x.counts"],
        ["audit", "x.counts", "--protected", "race"],
        ["audit", "none.csv", "--protected", "race"],
    ]
    script = tmp_path / "run.py"
    script.write_text(WITHOUT)
    command = [sys.executable, str(script), json.dumps(system), json.dumps(commands)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [1, 0, 0, 0, 0, 0, 0, 2], done.stderr
    made = {"a.json", "a.html", "r.fairfix", "decided.csv", "rule.sql", "x.counts", "run.py"}
    assert {path.name for path in tmp_path.iterdir()} == made
