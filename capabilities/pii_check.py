"""NoPII: a check for `Guard` that finds what is personal, in texts and in values. Knows nothing of runs."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from attrs import asdict, field, frozen, has

from .messages import text_field
from .pii import as_names
from .pii_masking import LEVELS, TooDeep, key_in, mask_of
from .pii_spelling import Pairs, digits_of, parsed


def _entities(value: Sequence[str] | None) -> tuple[str, ...] | None:
    return as_names(value, "NoPII.entities")


def _patterns(value: Sequence[str]) -> tuple[str, ...]:
    return as_names(value, "NoPII.patterns") or ()


@frozen
class NoPII:
    """A check that gives a reason where something personal stands in a text or value, by the detector of RedactPII.

    `entities`, `patterns` and `region` are those of `RedactPII`, and raise the same errors. The reason names the
    kinds that were found, never what was found.

    Looked into is what an output may be made of: strings, whole numbers, mappings, lists, sets, tuples, bytes, attrs
    classes, dataclasses, pydantic models, enums, and what is told by its text, as dates, decimals and paths.
    Raises TypeError for a value of any other type, by which a guard blocks.

    >>> NoPII()({"to": "ada@example.com"})
    'it holds what is personal: email'
    >>> NoPII()("nothing") is None
    True
    """

    entities: tuple[str, ...] | None = field(default=None, converter=_entities)
    patterns: tuple[str, ...] = field(default=(), converter=_patterns)
    region: str = field(default="US", kw_only=True, validator=text_field)

    def __attrs_post_init__(self) -> None:
        """Look each entity and pattern up."""
        self._find("")

    def __call__(self, value: object) -> str | None:
        """Return the reason, or None."""
        kinds = sorted({kind for text in _texts(value) for kind in self._find(text)})
        return f"it holds what is personal: {', '.join(kinds)}" if kinds else None

    def _find(self, text: str) -> Iterator[str]:
        mask = mask_of(self.entities, self.patterns, self.region, "")
        return iter([span.entity for span in mask.find(text)])


def _texts(value: object, key: str = "", levels: int = LEVELS) -> Iterator[str]:
    """Yield the texts of a value as they are masked: each behind its key, and those of a JSON text one by one."""
    if isinstance(value, str):
        yield from _of_text(value, key, levels)
    elif value is None or isinstance(value, int | float):
        yield _behind(key, digits_of(value) or "")
    elif levels <= 0:
        raise TooDeep
    elif isinstance(value, Mapping):
        for name, member in value.pairs if isinstance(value, Pairs) else value.items():
            yield str(name)
            yield from _texts(member, key_in(key, str(name)), levels - 1)
    elif isinstance(value, list | set | frozenset) or (
        isinstance(value, tuple) and not hasattr(value, "_asdict")
    ):
        for member in value:
            yield from _texts(member, key, levels - 1)
    else:
        yield from _texts(_parts(value), key, levels - 1)


def _of_text(text: str, key: str, levels: int) -> Iterator[str]:
    held = parsed(text)
    try:
        yield from [_behind(key, text)] if held is None else list(_texts(held, key, levels))
    except TooDeep:
        yield _behind(key, text)


def _behind(key: str, text: str) -> str:
    return f"{key}: {text}" if key else text


def _parts(value: object) -> object:
    dump = getattr(type(value), "model_dump", None)
    if callable(dump):
        return dump(value)
    named = getattr(value, "_asdict", None)
    if callable(named) and isinstance(value, tuple):
        return named()
    if has(type(value)):
        # What attrs makes is an AttrsInstance, which `has` does not tell mypy about an `object`.
        return asdict(value, recurse=False)  # type: ignore[arg-type]  # see above
    names = getattr(type(value), "__dataclass_fields__", None)
    if names is not None:
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, _told_by_text()):
        return str(value)
    raise TypeError(f"NoPII cannot look into a {type(value).__name__}: give it text, or JSON")


def _told_by_text() -> tuple[type, ...]:
    from datetime import date, time, timedelta  # noqa: PLC0415  # 10 ms with the others, for an output of such a type
    from decimal import Decimal  # noqa: PLC0415  # as above
    from pathlib import PurePath  # noqa: PLC0415  # as above
    from uuid import UUID  # noqa: PLC0415  # as above

    return (date, time, timedelta, Decimal, PurePath, UUID)
