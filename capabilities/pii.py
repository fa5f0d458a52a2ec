"""What is personal in a text: `detect`, the one detector that redaction, guards, sinks and stores share.

The patterns of each kind stand in one place, in the `pii_*` modules; nobody else has any of their own.
Knows nothing of messages, runs or what is done with what it finds.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from attrs import frozen

from .pii_addresses import find_emails, find_ips
from .pii_cards import FIRST_GROUPS, find_cards
from .pii_national import PREFIX, national_finder
from .pii_numbers import find_ibans, find_ssns
from .pii_phones import OWN_REGION, phone_finder

Finder: TypeAlias = Callable[[str], Iterator[tuple[int, int]]]

# Name -> what is found by it. Besides, "stdnum:" and the name of a validator of python-stdnum.
ENTITIES: Mapping[str, str] = {
    "email": "mail addresses, of any script",
    "phone": "phone numbers of `region`, bare digits after a word such as tel, phone, call or fax only",
    "ssn": "US social security numbers, dashed or spaced; bare digits after a word such as SSN only",
    "credit_card": "card numbers, in groups or not, by scheme, length and check digit",
    "iban": "bank accounts, by country, length and check digits",
    "ip": "IPv4 and IPv6 addresses",
}
DEFAULT_ENTITIES: tuple[str, ...] = ("email", "phone", "ssn", "credit_card")
PATTERN = "pattern"
_OWN: Mapping[str, Finder] = {
    "email": find_emails,
    "ssn": find_ssns,
    "credit_card": find_cards,
    "iban": find_ibans,
    "ip": find_ips,
}


@frozen
class Span:
    """Where something personal stands: `text[start:end]`. `entity`: which kind, "pattern" for a pattern given.

    The text itself is not in it, so a span can be logged.
    """

    start: int
    end: int
    entity: str


def detect(
    text: str,
    entities: Collection[str] = DEFAULT_ENTITIES,
    *,
    patterns: Collection[str] = (),
    region: str = OWN_REGION,
) -> tuple[Span, ...]:
    """Return what is personal in a text, from left to right; spans never overlap.

    `entities`: names of `ENTITIES`, or "stdnum:es.nif" for the validator `stdnum.es.nif`. `patterns`: regular
    expressions of your own. `region`: where phone numbers are read as if dialled, an ISO code of two letters.
    Where several kinds share a place it is one span, over all of them, named by the one that begins first.

    Linear in the length of the text; what `patterns` cost is theirs.
    Raises ValueError for a name that is unknown, ModuleNotFoundError where a library of the extra `pii` is
    missing: for the names of stdnum, and for phones outside the US.

    >>> detect("Write to ada@example.com or call (415) 555-0132.")
    (Span(start=9, end=24, entity='email'), Span(start=33, end=47, entity='phone'))
    """
    found: list[Span] = []
    for name, find in finders(tuple(entities), tuple(patterns), region):
        found += [Span(start, end, name) for start, end in find(text)]
    return joined(found) if len(found) > 1 else tuple(found)


# What a text has in it wherever an entity is found: most texts have none of it, and need no further look.
_NEEDED: Mapping[str, str] = {
    "email": "@|%40",
    "phone": "[0-9]{4}",
    "ssn": "[0-9]{4}",
    "credit_card": f"[0-9]{{{min(FIRST_GROUPS)}}}",
    "iban": "[0-9]{2}",
    "ip": "[0-9:]",
}


def needed(entities: tuple[str, ...], patterns: tuple[str, ...], region: str) -> "re.Pattern[str] | None":
    """Return what is somewhere in each text that `detect` finds something in; None where that is not known."""
    known = not patterns and all(name in _NEEDED for name in entities)
    if not known or ("phone" in entities and region != OWN_REGION):
        return None
    return re.compile("|".join(dict.fromkeys(_NEEDED[name] for name in entities)))


def joined(found: list[Span]) -> tuple[Span, ...]:
    """Return spans from left to right, those that share a place as one."""
    found.sort(key=lambda span: (span.start, -span.end))
    apart: list[Span] = []
    for span in found:
        last = apart[-1] if apart else None
        if last is None or span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = Span(last.start, span.end, last.entity)
    return tuple(apart)


@lru_cache(maxsize=64)
def finders(
    entities: tuple[str, ...], patterns: tuple[str, ...], region: str
) -> tuple[tuple[str, Finder], ...]:
    """Return name and finder of each kind; raises as `detect` does."""
    if re.fullmatch("[A-Z]{2}", region) is None:
        hint = f": did you mean {region[:2].upper()!r}?" if region[:2].isalpha() else ""
        raise ValueError(f"region must be a country code of two capital letters, not {region!r}{hint}")
    kinds = [(name, _finder(name, region)) for name in entities]
    return (*kinds, *((PATTERN, _pattern_finder(pattern)) for pattern in patterns))


def _finder(name: str, region: str) -> Finder:
    if name.startswith(PREFIX):
        return national_finder(name)
    if name == "phone":
        return phone_finder(region)
    if name in _OWN:
        return _OWN[name]
    from difflib import get_close_matches  # noqa: PLC0415  # for an error only

    near = get_close_matches(name, ENTITIES, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(ENTITIES)}, and 'stdnum:...'"
    raise ValueError(f"{name!r} is no entity: {hint}")


def _pattern_finder(pattern: str) -> Finder:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.fullmatch("") is not None:
        raise ValueError(f"pattern {pattern!r} matches the empty text, which is everywhere")

    def find(text: str) -> Iterator[tuple[int, int]]:
        return (found.span() for found in compiled.finditer(text) if found.end() > found.start())

    return find


def as_names(value: object, what: str) -> tuple[str, ...] | None:
    """Return names or patterns as a tuple, each once, those of a set in order; None stays. Raises TypeError."""
    if value is None:
        return None
    names: tuple[object, ...] | None = None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        names = tuple(value)
    if names is None or not all(type(name) is str for name in names):
        raise TypeError(f"{what} must be a list of strings, not {value!r:.80}")
    texts = map(str, names)
    # A set has another order in each process, and two of them would be two configurations.
    return tuple(sorted(texts) if isinstance(value, set | frozenset) else dict.fromkeys(texts))


def chosen(entities: tuple[str, ...] | None, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entities that are meant: without any named, the usual ones, or none beside own patterns."""
    if entities is not None:
        return entities
    return () if patterns else DEFAULT_ENTITIES
