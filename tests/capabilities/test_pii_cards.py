"""Cards: whole, whatever digits stand around them; and what is no card stays."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stdnum import luhn as oracle

from capfold.capabilities import detect
from capfold.capabilities.pii_cards import SCHEMES, SHAPES, find_cards, luhn, scheme_of

SEPARATORS = (" ", "-", ".", "\u00a0", "\u2009", "\u2013")
# 250 examples of 20 cards each: 5,000 cards.
EXAMPLES, CARDS = 250, 20


def card(chance: random.Random) -> str:
    """Return a valid card number of any scheme and length."""
    _, low, high, lengths = chance.choice(SCHEMES)
    length = chance.choice(sorted(lengths))
    prefix = str(chance.randint(int(low), int(high))).zfill(len(low))
    body = prefix + "".join(chance.choice("0123456789") for _ in range(length - len(prefix) - 1))
    return body + oracle.calc_check_digit(body)


def printed(chance: random.Random, digits: str) -> str:
    """Return the card in one of the shapes that its length is printed in."""
    shape = chance.choice(sorted(shape for shape in SHAPES if sum(shape) == len(digits)))
    text, done = "", 0
    for size in shape:
        text += (chance.choice(SEPARATORS) if text else "") + digits[done : done + size]
        done += size
    return text


def groups(chance: random.Random) -> list[str]:
    """Return groups of digits such as a date, a code or an order number."""
    sizes = [chance.randint(1, 8) for _ in range(chance.randint(0, 4))]
    return ["".join(chance.choice("0123456789") for _ in range(size)) for size in sizes]


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32))
def test_no_digits_around_a_card_hide_it(seed: int) -> None:
    """Groups before and after it, joined to it as its own groups are: the card is covered, from end to end."""
    chance = random.Random(seed)  # noqa: S311  # a sample; drawn sign by sign it would take ten times as long
    for _ in range(CARDS):
        shown, text, start = printed(chance, card(chance)), "", 0
        for piece in [*groups(chance), shown, *groups(chance)]:
            text += chance.choice(SEPARATORS) if text else ""
            start = len(text) if piece is shown else start
            text += piece
        covered = {place for span in detect(text, ["credit_card"]) for place in range(span.start, span.end)}
        assert set(range(start, start + len(shown))) <= covered, (text, shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4111 1111 1111 1111 12/27 123", ["4111 1111 1111 1111"]),
        ("pay 7 4111 1111 1111 1111 12 27", ["4111 1111 1111 1111"]),
        ("4111\u00a01111\u00a01111\u00a01111", ["4111\u00a01111\u00a01111\u00a01111"]),
        ("4111.1111.1111.1111.", ["4111.1111.1111.1111"]),
        ("3782 822463 10005", ["3782 822463 10005"]),
        ("3056 930902 5904", ["3056 930902 5904"]),
        ("5500 0000 0000 0004 4111-1111-1111-1111", ["5500 0000 0000 0004", "4111-1111-1111-1111"]),
        ("Visa4111111111111111, 4111111111111111EUR", ["4111111111111111"] * 2),
        (
            "2223003122003222 6011111111111117 3530111333300000",
            ["2223003122003222", "6011111111111117", "3530111333300000"],
        ),
    ],
)
def test_cards_as_people_write_them(text: str, expected: list[str]) -> None:
    """With an expiry date, two of them, in any grouping, in a word."""
    assert expected == [text[span.start : span.end] for span in detect(text, ["credit_card"])]


@pytest.mark.parametrize(
    "text",
    [
        "IMEI 490154203237518",
        "IMEI 49-015420-323751-8 and 35 209900 176148 1",
        "order 4111111111111112",
        "invoice 2026-11-0004711, customer 100200300400",
        "at 1767225600, 1767225600000 ms, 1767225600000000 us",
        "run-41111111111111111111",
        "41111111111111114111",
        "sha 9a4111111111111111b7c",
        "JVBERiPjwlLAoJMTAgMCBvYm4111111111111111",
        "4111111111111111JVBERiPjwlLAoJMTAgMCBvYm",
        "4111  1111  1111  1111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    """Order and invoice numbers, unix times, device numbers, ids, and pieces of longer runs."""
    assert () == detect(text, ["credit_card"])


@given(st.text("0123456789", min_size=2, max_size=24))
def test_luhn_agrees_with_stdnum(digits: str) -> None:
    """The check digit is what another library says."""
    assert oracle.is_valid(digits) == luhn(digits)
    assert luhn(digits + oracle.calc_check_digit(digits))


def test_few_numbers_are_taken_for_cards() -> None:
    """Of random numbers of 16 digits about one in thirty is masked, where Luhn alone takes one in ten."""
    chance = random.Random(7)  # noqa: S311  # a fixed sample
    numbers = ["".join(chance.choice("0123456789") for _ in range(16)) for _ in range(5_000)]
    assert sum(bool(list(find_cards(number))) for number in numbers) <= 0.05 * len(numbers)


@given(st.data())
def test_a_scheme_has_its_lengths(data: st.DataObject) -> None:
    """A prefix counts with the lengths of its scheme only."""
    name, low, _, lengths = data.draw(st.sampled_from(SCHEMES))
    length = data.draw(st.integers(8, 24))
    known = scheme_of(low + "0" * (length - len(low)))
    assert length not in lengths or known is not None
    assert known is None or any(known == other and length in legal for other, _, _, legal in SCHEMES)
    assert name
