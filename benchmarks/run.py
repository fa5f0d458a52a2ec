"""Start the benchmarks: `python benchmarks/run.py [W1 W2 ...] [--quick] [--readme README.md] [--json FILE]`.

It only makes the package importable when it is started as a script; what the command does is in `command`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The first path entry of a script is its own folder; the one that has `benchmarks` in it is needed.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from benchmarks.command import main

    raise SystemExit(main())
