"""``python -m fairfix`` is the command line."""

from fairfix.cli import main

if __name__ == "__main__":
    main()
