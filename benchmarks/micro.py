"""The price of one hook call, one log record, one check.

All but the check are differences between whole runs through the public API, divided by how often the thing
happened: what a user pays, with everything around it. Must not know any framework.
"""

from .contract import CHECKS, HookKind, Job
from .drive import Worker
from .participants import CAPFOLD, Participant
from .results import Row
from .session import Session

STEPS = 10
HOOKS = 20
LONG = 100
CHECKER = Participant("capfold checks", "a_checks", "capfold", "capfold", False)


def micro(session: Session) -> list[Row]:
    """Return the rows of everything small."""
    rows = hook_calls(session)
    if session.capfold is not None:
        rows += [*log_records(session, session.capfold), *checks(session)]
    return rows


def hook_calls(session: Session) -> list[Row]:
    """One call of one hook: (ten steps with 20 capabilities - ten steps with none) / calls."""
    cases = session.everyone(Job(steps=STEPS), "none ") | session.everyone(
        Job(steps=STEPS, hooks=HOOKS), "noop "
    )
    others: tuple[HookKind, ...] = ("absent", "changing")
    if session.capfold is not None:
        for other in others:
            cases[f"{other} {CAPFOLD.name}"] = (
                session.capfold,
                Job(steps=STEPS, hooks=HOOKS, kind=other),
            )
    figures = session.figures(cases)
    titles: dict[HookKind, str] = {
        "absent": "one hook that a capability does not override",
        "noop": "one call of a no-op hook",
        "changing": "one call of a hook that changes the state, logged",
    }
    rows = []
    for kind, title in titles.items():
        values = {}
        for each in session.participants:
            figure = figures.get(f"{kind} {each.name}")
            if figure is not None:
                # An absent hook is not called: its price is spread over the calls there would have been.
                calls = figures[f"noop {each.name}"].hook_calls
                values[each.name] = (figure.median - figures[f"none {each.name}"].median) / calls
        if values:
            rows.append(Row("micro", title, "ns", values))
    return rows


def log_records(session: Session, worker: Worker) -> list[Row]:
    """One log record: made, hashed when first read, written as a line."""

    def records(variant: str, steps: int, hooks: int) -> int:
        return worker.number("output", "ask", Job(steps=steps, hooks=hooks, variant=variant))

    figures = session.figures(
        {
            "changes": (worker, Job(steps=STEPS, hooks=HOOKS)),
            "all": (worker, Job(steps=STEPS, hooks=HOOKS, variant="every call")),
            "run": (worker, Job(steps=LONG)),
            "head": (worker, Job(steps=LONG, variant="head")),
            "lines": (worker, Job(steps=LONG, variant="lines")),
        }
    )
    entries = records("count, every call", STEPS, HOOKS) - records("count", STEPS, HOOKS)
    length = records("count", LONG, 0)
    prices = {
        "one log record: entry in the memory log": (figures["all"].median - figures["changes"].median)
        / entries,
        "one log record: digest, when first read": (figures["head"].median - figures["run"].median) / length,
        "one log record: JSON line with its seal": (figures["lines"].median - figures["head"].median)
        / length,
    }
    return [Row("micro", title, "ns", {CAPFOLD.name: price}) for title, price in prices.items()]


def checks(session: Session) -> list[Row]:
    """One check of a transition by the generated function and by its plain twin."""
    worker = session.worker(CHECKER)
    titles = {
        "identical": "one check: the record that came back is the one given",
        "changed": "one check: one field changed, generated",
        "changed, plain": "one check: one field changed, plain twin",
    }
    cases = {variant: (worker, Job(variant=variant)) for variant in ("loop", *titles)}
    figures = session.figures(cases)
    return [
        Row("micro", title, "ns", {CAPFOLD.name: (figures[variant].median - figures["loop"].median) / CHECKS})
        for variant, title in titles.items()
    ]
