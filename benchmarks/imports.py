"""W6: what importing costs, alone and with a first agent built, each time in a fresh interpreter.

Must not know what the numbers are compared with.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from attrs import frozen

from .drive import ROOT
from .participants import BenchError, Participant

PROBE = """
import json, resource, sys, time
import benchmarks.programs
before = time.process_time_ns()
{statement}
spent = time.process_time_ns() - before
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
loaded = [name for name in {heavy} if name in sys.modules]
print(json.dumps({{"cpu": spent, "peak": peak * unit, "loaded": loaded}}))
"""
HEAVY = ("openai", "hypothesis")
"""Modules that `import capfold...` must not load: each costs more than capfold itself."""


@frozen
class ImportCost:
    """One statement: its CPU nanoseconds, peak bytes of the whole process."""

    cpu: float
    peak: float
    loaded: tuple[str, ...]
    """Which of `HEAVY` it loaded."""


def import_cost(participant: Participant, statement: str, scratch: Path, rounds: int) -> ImportCost:
    """Return what an import statement costs: the medians over `rounds` interpreters.

    One more comes before them and is not counted: it writes the bytecode files, whatever the environment says.

    Raises:
        BenchError: the import failed; its traceback went to standard error.
    """
    probe = PROBE.format(statement=statement, heavy=HEAVY)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | dict(participant.environment)
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    answers = []
    for _ in range(rounds + 1):
        process = subprocess.run(
            [sys.executable, "-c", probe],
            stdout=subprocess.PIPE,
            text=True,
            cwd=scratch,
            env=variables,
            check=False,
        )
        if process.returncode != 0:
            raise BenchError(f"{participant.name}: `{statement}` ended with {process.returncode}")
        # What a framework prints at import comes before it.
        answers.append(json.loads(process.stdout.splitlines()[-1]))
    timed = answers[1:]
    return ImportCost(
        statistics.median(answer["cpu"] for answer in timed),
        statistics.median(answer["peak"] for answer in timed),
        tuple(timed[-1]["loaded"]),
    )
