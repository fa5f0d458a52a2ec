"""Phone numbers: formatted, or bare after a word that says so; here and elsewhere."""

import pytest

from capfold.capabilities import detect


def found(text: str, region: str = "US") -> list[str]:
    """Return the phone numbers as they stand in the text."""
    return [text[span.start : span.end] for span in detect(text, ["phone"], region=region)]


@pytest.mark.parametrize(
    "number",
    [
        "(415) 555-0132",
        "(415)555-0132",
        "415-555-0132",
        "415.555.0132",
        "415 555 0132",
        "415\u00a0555\u00a00132",
        "+1 415 555 0132",
        "+14155550132",
        "+1 (415) 555-0132",
        "1-800-555-0199",
        "1 (415) 555 0132",
    ],
)
def test_formatted_numbers(number: str) -> None:
    """Found whole, bracket and country code included, wherever they stand."""
    for text in (
        number,
        f"at {number}.",
        f"Call {number}!",
        f"a,{number};b",
        f"{number}x12",
        f"{number}ext. 5",
    ):
        assert [number] == found(text)


@pytest.mark.parametrize(
    "lead",
    [
        "tel ",
        "Tel.: ",
        "phone ",
        "Phone number: ",
        "phone no. ",
        "telephone=",
        "fax #",
        "call ",
        "Call me at ",
        "calling ",
        "my cell is ",
        '{"phone": "',
        '{"phone_number":',
        "phoneNumber: ",
        "PHONE-NUMBER ",
        "homePhone: ",
        "mobilePhone1=",
        '{"phone_2": "',
        "phones home: ",
        "phone value: ",
    ],
)
def test_bare_numbers_after_a_cue(lead: str) -> None:
    """Ten digits are a number to call where a word says so."""
    assert ["4155550132"] == found(f"{lead}4155550132")
    assert ["14155550132"] == found(f"{lead}14155550132")


@pytest.mark.parametrize(
    "text",
    [
        "order 4155550132",
        "invoice no 4155550132",
        "1767225600 and 1767225600000",
        "call_4155550132",
        "recall 4155550132",
        "String 4155550132",
        "call_1_0: 4155550132",
        "call the desk about order 4155550132",
        "telephone lines: none. Order 4155550132",
        "4155550132 tel",
        "115-555-0132, 415-155-0132",
        "x415-555-0132, 415-555-01320",
        "2026-11-30, 12.345.678",
        "7d3c1f6e-0b5a-4c1e-a415-5550132abcde",
        "IMEI 490154203237518",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    """Order and invoice numbers, times, ids: bare digits say nothing, and a cue must lead to them."""
    assert [] == found(text)


@pytest.mark.parametrize(
    ("text", "region", "expected"),
    [
        ("Ruf an: 030 1234567", "DE", ["030 1234567"]),
        ("Bestellung 0301234567", "DE", []),
        ("Telefon 0301234567", "DE", ["0301234567"]),
        ("+49 30 1234567, +33 1 23 45 67 89", "DE", ["+49 30 1234567", "+33 1 23 45 67 89"]),
        ("appelez le 01 23 45 67 89", "FR", ["01 23 45 67 89"]),
        ("at 1767225600", "GB", []),
        ("020 7946 0958", "GB", ["020 7946 0958"]),
    ],
)
def test_other_regions(text: str, region: str, expected: list[str]) -> None:
    """By the library of the extra `pii`, with the rule for bare digits on top."""
    assert expected == found(text, region)
