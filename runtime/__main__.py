"""The command `capfold`, and `python -m capfold.runtime`. The commands need click, the extra `cli`."""

import sys


def main() -> None:
    """Run the command line: exit 0 when all is well, 1 when a check failed, 2 for a wrong call."""
    try:
        import click  # noqa: F401, PLC0415  # an extra: who does without it must be told how to get it
    except ModuleNotFoundError:
        sys.stderr.write("The command line needs click: pip install capfold[cli]\n")
        sys.exit(2)
    from .commands import capfold  # noqa: PLC0415  # it imports click

    capfold(prog_name="capfold")


if __name__ == "__main__":
    main()
