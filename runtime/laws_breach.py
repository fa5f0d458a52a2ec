"""What is wrong with a step, and in what two records differ. Knows no law."""

from collections.abc import Iterator

from attrs import fields, frozen

from ..capabilities.frozen import same
from ..capabilities.state import RunState


@frozen
class Breach:
    """What is wrong: a sentence, and the field with its value before and after, where it is about one."""

    what: str
    field: str | None = None
    before: object = None
    after: object = None


def differing(one: object, other: object, prefix: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield the fields in which two records differ, by type and value; those of a call's run as `run.x`."""
    for field in fields(type(one)):  # type: ignore[arg-type]  # records are attrs classes
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "run" and isinstance(a, RunState) and isinstance(b, RunState):
            yield from differing(a, b, "run.")
        elif field.eq and a is not b and not same(a, b):
            yield f"{prefix}{field.name}", a, b


def part_of(record: object, path: str) -> object:
    """Return the part of a record under a path such as `run.slots`, None where there is none."""
    for name in path.split("."):
        record = getattr(record, name, None)
    return record
