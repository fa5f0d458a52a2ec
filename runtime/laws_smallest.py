"""From a finding to the smallest record that shows it, and to a line of Python that was seen to raise it."""

from attrs import evolve, fields

from ..capabilities.call_state import CallState
from ..capabilities.frozen import same
from ..capabilities.records import replace
from ..capabilities.state import RunState
from .laws_breach import Breach
from .laws_code import NoSourceError, import_lines, source_of
from .laws_lives import Record
from .laws_steps import step_of
from .laws_table import breach_of
from .laws_violation import Found, LawViolation, raised

_HERE = __name__.rpartition(".")[0]
# What says where a record stands in its run; a law may look at it, so it stays as it was found.
_KEPT = frozenset(
    {
        "messages",
        "history_start",
        "request_messages",
        "response",
        "status",
        "run_step",
        "run",
        "asked",
        "tool",
    }
    | {"outcome", "facts"}
)


def smallest(found: Found) -> Found:
    """Return the finding with every field of its record at its default that has nothing to do with it."""
    record = found.record
    if record is None:
        return found
    for path in _paths(record):
        smaller = _reset(record, path)
        if smaller is None:
            continue
        breach = _breach(found, smaller)
        if breach is not None and (breach.what, breach.field) == (found.breach.what, found.breach.field):
            record, found = smaller, evolve(found, record=smaller, breach=breach)
    return found


def _breach(found: Found, record: Record) -> Breach | None:
    assert found.hook is not None
    return breach_of(found.law, step_of(found.capability, found.hook, record))


def _paths(record: Record) -> list[str]:
    run = [f"run.{field.name}" for field in fields(RunState)] if isinstance(record, CallState) else []
    return [*run, *(field.name for field in fields(type(record)))]


def _reset(record: Record, path: str) -> Record | None:
    name = path.removeprefix("run.")
    if name in _KEPT or (path == "tools" and isinstance(record, CallState)):
        return None
    if name != path:
        assert isinstance(record, CallState)
        run = _reset(record.run, name)
        return None if run is None else replace(record, run=run)
    default = getattr(_DEFAULTS[type(record)], name)
    return None if same(getattr(record, name), default) else replace(record, **{name: default})


_DEFAULTS: dict[type, Record] = {RunState: RunState(), CallState: CallState()}


def violation_of(found: Found) -> LawViolation:
    """Return the exception of a finding, with a line of code that was seen to raise it."""
    law, key = found.law.name, found.capability.key
    bare = f"from {_HERE}.laws import check_law; check_law(cap, {law!r}"
    code = f"{bare})" if found.hook is None else f"{bare}, {found.hook!r}, record, key={key!r})"
    if found.hook is not None:
        imports: dict[str, str] = {"check_law": f"{_HERE}.laws"}
        try:
            record = source_of(found.record, imports)
        except NoSourceError:
            pass
        else:
            line = f"{import_lines(imports)}; check_law(cap, {law!r}, {found.hook!r}, {record}, key={key!r})"
            code = line if _raises(line, found) else code
    return raised(found, code)


def _raises(line: str, found: Found) -> bool:
    try:
        exec(line, {"cap": found.capability})  # noqa: S102  # the source of a record, written above
    except LawViolation as again:
        return again.law == found.law.name
    except Exception:  # noqa: BLE001  # a class of the user's that is not made as it is written
        return False
    return False
