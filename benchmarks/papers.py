"""The experiments of the papers: ``python -m benchmarks.papers [ramp ...] --data DIR``, which writes docs/papers/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from run import main

if __name__ == "__main__":
    sys.exit(main(["--papers", *sys.argv[1:]]))
