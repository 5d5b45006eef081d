"""The experiments of the papers, written into docs/papers/: ``make papers``.

``python -m benchmarks.papers ramp --data DIR`` runs those of a paper on data in a folder, or, with the name of a script
in place of the paper's, that script; the other tables stay. What has no data is skipped by name: a data set in the
tables of several, else the script, which keeps its table. So does one that fails, and the status is then 1. What
``--fetch`` cannot fetch it names, and goes on.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from run import PAGES, main

PAPERS = {page: scripts for page, scripts in PAGES.items() if page.startswith("papers/")}

if __name__ == "__main__":
    sys.exit(main(pages=PAPERS, about=__doc__))
