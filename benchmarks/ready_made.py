"""The price of ready-made capabilities: with nothing to do, and beside a long history that did not change.

All are ratios within one run of the command, of capfold alone. Must not know any framework.
"""

from .contract import Job
from .participants import CAPFOLD
from .results import Row
from .session import Session

STEPS = 10
HOOKS = 8
SHORT, LONG = 100, 1000
LOOKING = {
    "redact": "redaction of all that is shown",
    "trim": "trimming to 20 messages",
    "trim, redact": "trimming to 20 messages, and redaction of those",
}
"""Variant of the adapter -> what it does with each request."""


def ready_made(session: Session) -> list[Row]:
    """W8: what eight built-ins add beside eight no-op capabilities; what a long history adds to some of them."""
    if session.capfold is None:
        return []
    worker = session.capfold
    idle = session.figures(
        {
            "none": (worker, Job(steps=STEPS)),
            "noop": (worker, Job(steps=STEPS, hooks=HOOKS)),
            "built-ins": (worker, Job(steps=STEPS, variant="built-ins")),
        }
    )
    none = idle["none"].median
    ratio = (idle["built-ins"].median - none) / (idle["noop"].median - none)
    rows = [
        _row(f"what {HOOKS} built-ins with nothing to do add to a step, by what {HOOKS} no-ops add", ratio)
    ]
    variants = ("", *LOOKING)
    figures = session.figures(
        {
            f"{variant} {steps}": (worker, Job(steps=steps, variant=variant))
            for variant in variants
            for steps in (SHORT, LONG)
        }
    )
    for variant, title in LOOKING.items():
        added = {
            steps: (figures[f"{variant} {steps}"].median - figures[f" {steps}"].median) / steps
            for steps in (SHORT, LONG)
        }
        rows.append(
            _row(f"{title}: what it adds to a step of {LONG}, by that of {SHORT}", added[LONG] / added[SHORT])
        )
    return rows


def _row(title: str, ratio: float) -> Row:
    return Row("W8", title, "ratio", {CAPFOLD.name: ratio}, compared=False)
