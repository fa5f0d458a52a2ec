"""Texts of several parts that are read as one: what is cut in two by the end of a part is masked whole.

Knows no messages, and not what is personal.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from .pii import Span
from .pii_spelling import parsed

# A placeholder may complete what was none before, with a pattern that looks around itself; each round takes more.
ROUNDS = 8


def one_text(texts: list[str], find: Callable[[str], tuple[Span, ...]], placeholder: str) -> list[str]:
    """Return texts masked that are read as one; the same list where there is nothing to mask.

    What stands in one text that is JSON is left alone: it is masked by what the JSON says of it.
    """
    for _ in range(ROUNDS):
        ends = list(accumulate(map(len, texts)))
        closed = [parsed(text) is not None for text in texts]
        spans = [
            span
            for span in find("".join(texts))
            if not closed[first := bisect_right(ends, span.start)] or span.end > ends[first]
        ]
        if not spans:
            break
        made: list[str] = []
        for text, end in zip(texts, ends, strict=True):
            start, pieces, done = end - len(text), [], 0
            for span in spans:
                if span.start < end and span.end > start:
                    pieces.append(text[done : max(0, span.start - start)])
                    pieces.append(placeholder if span.start >= start else "")
                    done = min(len(text), span.end - start)
            made.append("".join([*pieces, text[done:]]))
        texts = made
    return texts
