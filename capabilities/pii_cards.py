"""Payment card numbers in text: whole groups of digits in a known shape, of a known scheme, with a right check digit.

A candidate is a window of whole digit groups, so that digits before and after a card ("... 1111 12/27 123") hide
nothing. Knows nothing of what is done with what it finds.
"""

import re
from collections.abc import Iterator

# One of these may stand between two groups: spaces of any width, the dash family, the dot.
SEPARATORS = " \u00a0\u2002-\u200a\u202f.\u2010-\u2015\u2212-"
_SEPARATOR = re.compile(f"[{SEPARATORS}]")
_GROUP = re.compile(r"[0-9]+")

# Scheme -> lowest and highest prefix, lengths of the whole number.
SCHEMES: tuple[tuple[str, str, str, frozenset[int]], ...] = (
    ("visa", "4", "4", frozenset({13, 16, 19})),
    ("mastercard", "51", "55", frozenset({16})),
    ("mastercard", "2221", "2720", frozenset({16})),
    ("american express", "34", "34", frozenset({15})),
    ("american express", "37", "37", frozenset({15})),
    ("diners club", "300", "305", frozenset({14, 16})),
    ("diners club", "36", "36", frozenset({14, 16})),
    ("diners club", "38", "39", frozenset({14, 16})),
    ("jcb", "3528", "3589", frozenset({16, 17, 18, 19})),
    ("mir", "2200", "2204", frozenset({16, 17, 18, 19})),
    ("discover", "6011", "6011", frozenset({16, 17, 18, 19})),
    ("discover", "644", "659", frozenset({16, 17, 18, 19})),
    ("unionpay", "62", "62", frozenset({16, 17, 18, 19})),
    ("maestro", "50", "50", frozenset({16})),
    ("maestro", "56", "58", frozenset({16})),
    ("maestro", "60", "69", frozenset({16})),
    ("maestro", "5018", "5018", frozenset(range(12, 20))),
    ("maestro", "5020", "5020", frozenset(range(12, 20))),
    ("maestro", "5038", "5038", frozenset(range(12, 20))),
    ("maestro", "5893", "5893", frozenset(range(12, 20))),
    ("maestro", "6304", "6304", frozenset(range(12, 20))),
    ("maestro", "6759", "6763", frozenset(range(12, 20))),
)
LENGTHS = range(12, 20)
# How the digits of a card are grouped in print.
SHAPES: frozenset[tuple[int, ...]] = frozenset(
    {
        *((length,) for length in LENGTHS),
        (4, 4, 4, 4),
        (4, 6, 5),
        (4, 6, 4),
        (4, 4, 4, 4, 3),
        (4, 4, 4, 4, 2),
        (4, 4, 4, 4, 1),
        (4, 4, 4, 3),
        (4, 4, 4, 2),
        (4, 4, 4, 1),
        (4, 4, 5),
        (6, 10),
        (6, 13),
        (8, 8),
    }
)
FIRST_GROUPS = frozenset(shape[0] for shape in SHAPES)
_MOST_GROUPS = max(map(len, SHAPES))
# More letters than this beside a number are no word but an encoded text or an id.
_WORD = 24
# What a digit adds to the sum when it is doubled.
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


def luhn(digits: str) -> bool:
    """Tell whether the last of the ASCII digits is the check digit of the others (ISO/IEC 7812)."""
    total = sum(map(int, digits[-1::-2])) + sum(_DOUBLED[int(digit)] for digit in digits[-2::-2])
    return total % 10 == 0


def scheme_of(digits: str) -> str | None:
    """Return the scheme whose cards have this length and this beginning, or None."""
    for name, low, high, lengths in SCHEMES:
        if len(digits) in lengths and low <= digits[: len(low)] <= high:
            return name
    return None


def find_cards(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each window of groups that is a card; windows may overlap."""
    groups = [found.span() for found in _GROUP.finditer(text)]
    for i, (start, end) in enumerate(groups):
        if end - start not in FIRST_GROUPS:
            continue
        lengths: tuple[int, ...] = ()
        digits, last = "", start - 1
        for begin, finish in groups[i : i + _MOST_GROUPS]:
            joined = not lengths or (begin == last + 1 and _SEPARATOR.match(text, last) is not None)
            if not joined or len(digits) + finish - begin > LENGTHS[-1]:
                break
            lengths, digits, last = (*lengths, finish - begin), digits + text[begin:finish], finish
            if (
                lengths in SHAPES
                and scheme_of(digits)
                and luhn(digits)
                and _stands_alone(text, start, finish)
            ):
                yield start, finish


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Tell whether the number is no piece of a longer token, such as a hexadecimal id; a word may touch it."""
    left, right = start, end
    while left > max(0, start - _WORD) and text[left - 1].isalpha():
        left -= 1
    while right < min(len(text), end + _WORD) and text[right].isalpha():
        right += 1
    if start - left == _WORD or right - end == _WORD:
        return False
    before = text[left - 1 : left] if left < start else ""
    after = text[right : right + 1] if right > end else ""
    return not (before.isdigit() or after.isdigit())
