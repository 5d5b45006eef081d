"""``python -m fairfix`` and ``fairfix`` are the command line."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; an interrupt while it is being loaded ends the process without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fairfix.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
