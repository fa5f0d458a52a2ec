"""Social security numbers and IBANs, held against python-stdnum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import iban
from stdnum.us import ssn

from capfold.capabilities import detect
from capfold.capabilities.pii_numbers import IBAN_LENGTHS, is_iban, is_ssn

# Numbers that stdnum refuses because they were printed in advertisements: to mask them does no harm.
PRINTED = {"078051120", "457555462", "219099999"}


def found(text: str, entity: str) -> list[str]:
    """Return what is found, as it stands in the text."""
    return [text[span.start : span.end] for span in detect(text, [entity])]


@given(
    st.tuples(
        st.sampled_from(["000", "001", "078", "665", "666", "667", "899", "900", "999"]),
        st.sampled_from(["00", "01", "99"]),
        st.sampled_from(["0000", "0001", "1120", "9999"]),
    ).map("".join)
    | st.text("0123456789", min_size=9, max_size=9)
)
def test_ranges_agree_with_stdnum(digits: str) -> None:
    """What can be assigned is what another library says, printed numbers apart."""
    assert (ssn.is_valid(digits) or digits in PRINTED) == is_ssn(digits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SSN 123-45-6789.", ["123-45-6789"]),
        ("123 45 6789 and 123\u201345\u20136789", ["123 45 6789", "123\u201345\u20136789"]),
        ("123-45 6789, 000-12-3456, 666-12-3456, 912-12-3456, 123-00-4567, 123-45-0000", []),
        ("9 123-45-6789 1", ["123-45-6789"]),
        ("SSN123-45-6789x", ["123-45-6789"]),
        ("123-45-67890, 0123-45-6789", []),
        ("ssn: 123456789", ["123456789"]),
        ('{"ssn": "123456789"}', ["123456789"]),
        ("My Social Security number is 123456789", ["123456789"]),
        ("order 123456789, 123456789", []),
        ("ssn 912345678", []),
    ],
)
def test_social_security_numbers(text: str, expected: list[str]) -> None:
    """Dashed or spaced alike and in range; nine bare digits after a cue word."""
    assert expected == found(text, "ssn")


REAL = (
    "DE89 3704 0044 0532 0130 00",
    "GB82 WEST 1234 5698 7654 32",
    "FR14 2004 1010 0505 0001 3M02 606",
    "NL91 ABNA 0417 1643 00",
    "ES91 2100 0418 4502 0005 1332",
    "NO93 8601 1117 947",
    "MT84 MALT 0110 0001 2345 MTLC AST0 01S",
    "CH93 0076 2011 6238 5295 7",
)


@pytest.mark.parametrize("text", REAL)
def test_accounts(text: str) -> None:
    """In groups, in one piece, in small letters, dashed, before and after other words."""
    compact = text.replace(" ", "")
    assert iban.is_valid(compact)
    for form in (text, compact, compact.lower(), text.replace(" ", "-"), text.replace(" ", "\u00a0")):
        assert [form] == found(f"to {form} and so on", "iban")
        assert [form] == found(f"to {form}.", "iban")
        assert [] == found(f"to {form}0", "iban")
        assert [] == found(f"to x{form}", "iban")


@given(st.sampled_from(REAL), st.integers(2, 33), st.sampled_from("0123456789"))
def test_a_wrong_digit_is_none(text: str, place: int, digit: str) -> None:
    """Mod 97 agrees with stdnum on a number of which one sign was changed."""
    compact = text.replace(" ", "")
    changed = compact[:place] + digit + compact[place + 1 :]
    if len(changed) == len(compact) and not iban.is_valid(changed, check_country=False):
        assert changed[4:].isdigit() is False or not is_iban(changed)
    elif len(changed) == len(compact):
        assert is_iban(changed)


def test_lengths_agree_with_stdnum() -> None:
    """Of accounts of digits: what stdnum accepts, of any country and length, is accepted here, and no other length."""
    accepted = 0
    for country in sorted({*IBAN_LENGTHS, "US", "XX"}):
        for length in range(11, 31):
            rest = "1" * length
            number = country + iban.calc_check_digits(f"{country}00{rest}") + rest
            right = is_iban(number)
            assert right == (IBAN_LENGTHS.get(country) == len(number))
            if iban.is_valid(number, check_country=False):
                accepted += 1
                assert right
    assert accepted >= 40
