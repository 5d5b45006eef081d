"""Print the processor features of this machine that numpy uses beyond its baseline, to switch them off."""

from __future__ import annotations

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

if __name__ == "__main__":
    print(" ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name)))
