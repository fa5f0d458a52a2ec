"""Ranking of tools by the words of a query: Okapi BM25 over names, descriptions and parameters. Knows no run.

The formula is that of S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
(2009), with its usual k1 = 1.2 and b = 0.75 and the logarithm that stays positive for words in most documents.
A tool is a short document: its name counts three times, since that is what it was called for a reason. No
embedding, no index kept outside: equal tools and query give equal ranks, on every machine.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from .frozen import FrozenDict, Json
from .tool_record import Tool

_K1: Final = 1.2
_B: Final = 0.75
_NAME_COUNTS: Final = 3
# Words of any script; `getInvoice_v2` is get, invoice, v2.
_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLURAL: Final = 3  # a shorter word that ends in s is seldom one: `gas`, `bus`


def words(text: str) -> list[str]:
    """Return the words of a text, in order: lower case, compound names split, a plural s taken off."""
    found = _WORD.findall(_HUMP.sub(" ", text))
    return [_stem(word.casefold()) for word in found]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > _PLURAL and word.endswith("s") and not word.endswith("ss") else word


def rank(query: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools that share a word with the query, best first; of equals the one listed first.

    The cost is linear in the tools and in the query, however long, and the tools' words are counted once.
    """
    counted = [_words_of(tool.name, tool.description, tool.parameters) for tool in tools]
    known = frozenset().union(*counted)
    # Each once, in order: a sum of floats depends on it.
    asked = [word for word in dict.fromkeys(words(query)) if word in known]
    if not asked:
        return []
    lengths = [counts.total() for counts in counted]
    mean = sum(lengths) / len(lengths)
    weights = {word: _weight(sum(word in counts for counts in counted), len(counted)) for word in asked}
    scored: list[tuple[float, int]] = []
    for i, (counts, length) in enumerate(zip(counted, lengths, strict=True)):
        norm = _K1 * (1 - _B + _B * length / mean)
        score = sum(
            weights[word] * counts[word] * (_K1 + 1) / (counts[word] + norm)
            for word in asked
            if word in counts
        )
        if score:
            scored.append((-score, i))
    return [tools[i] for _, i in sorted(scored)]


def _weight(having: int, among: int) -> float:
    return math.log(1 + (among - having + 0.5) / (having + 0.5))


@functools.lru_cache(maxsize=4096)
def _words_of(name: str, description: str, parameters: FrozenDict[Json]) -> Counter[str]:
    counts = Counter(words(name) * _NAME_COUNTS + words(description))
    for text in _texts(parameters):
        counts.update(words(text))
    return counts


def _texts(schema: Json) -> Iterator[str]:
    """Yield what a schema says in words: names of properties, titles aside, descriptions and choices."""
    if isinstance(schema, FrozenDict):
        for key, value in schema.items():
            if key == "properties" and isinstance(value, FrozenDict):
                yield from value
                for member in value.values():
                    yield from _texts(member)
            elif key == "description" and isinstance(value, str):
                yield value
            elif key in {"enum", "const"}:
                yield from (
                    item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)
                )
            elif isinstance(value, FrozenDict | list):
                yield from _texts(value)
    elif isinstance(schema, list):
        for member in schema:
            yield from _texts(member)
