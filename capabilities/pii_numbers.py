"""Numbers that a state or a bank gives: US social security numbers and IBANs. Knows nothing of cards and phones."""

import re
from collections.abc import Iterator

from .pii_cards import SEPARATORS
from .pii_cues import cue_before

# Dashed or spaced, both times alike; a word may touch it.
_SSN = re.compile(
    r"(?<![0-9])([0-9]{3})([ \u00a0\u2009\u202f\u2010-\u2015\u2212-])([0-9]{2})\2([0-9]{4})(?![0-9])"
)
_ENDING = re.compile("[0-9]{4}")
_NINE = re.compile(r"(?<!\w)[0-9]{9}(?!\w)")
_ssn_cue = cue_before(("ssn", "social security", r"soc\.? sec\.?", "social"))

_IBAN_START = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}")
_CHECK_DIGITS = re.compile("[0-9]{2}")
_IBAN_NEXT = re.compile(rf"[{SEPARATORS}]?([0-9A-Za-z])")
# Country -> characters of an IBAN (ISO 13616 registry).
IBAN_LENGTHS: dict[str, int] = {
    **dict.fromkeys(("NO",), 15),
    **dict.fromkeys(("BE",), 16),
    **dict.fromkeys(("DK", "FI", "FK", "FO", "GL", "NL", "SD"), 18),
    **dict.fromkeys(("MK", "SI"), 19),
    **dict.fromkeys(("AT", "BA", "EE", "KZ", "LT", "LU", "MN", "XK"), 20),
    **dict.fromkeys(("CH", "HR", "LI", "LV"), 21),
    **dict.fromkeys(("BG", "BH", "CR", "DE", "GB", "GE", "IE", "ME", "RS", "VA"), 22),
    **dict.fromkeys(("AE", "GI", "IL", "IQ", "OM", "SO", "TL"), 23),
    **dict.fromkeys(("AD", "CZ", "ES", "MD", "PK", "RO", "SA", "SE", "SK", "TN", "VG"), 24),
    **dict.fromkeys(("LY", "PT", "ST"), 25),
    **dict.fromkeys(("IS", "TR"), 26),
    **dict.fromkeys(("BI", "DJ", "FR", "GR", "IT", "MC", "MR", "SM"), 27),
    **dict.fromkeys(("AL", "AZ", "BY", "CY", "DO", "GT", "HN", "HU", "LB", "NI", "PL", "SV"), 28),
    **dict.fromkeys(("BR", "EG", "PS", "QA", "UA"), 29),
    **dict.fromkeys(("JO", "KW", "MU", "YE"), 30),
    **dict.fromkeys(("LC", "MT"), 31),
    **dict.fromkeys(("SC",), 32),
    **dict.fromkeys(("RU",), 33),
}


def is_ssn(digits: str) -> bool:
    """Tell whether nine digits are a number that can be assigned: area, group and serial are in range."""
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in {"000", "666"} and area[0] != "9" and group != "00" and serial != "0000"


def find_ssns(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each social security number; nine bare digits count after a cue word only."""
    if _ENDING.search(text) is None:  # most texts
        return
    for found in _SSN.finditer(text):
        if is_ssn(found[1] + found[3] + found[4]):
            yield found.span()
    for found in _NINE.finditer(text):
        if is_ssn(found[0]) and _ssn_cue(text, found.start()):
            yield found.span()


def is_iban(compact: str) -> bool:
    """Tell whether letters and digits have their country's length and are right by mod 97 (ISO 7064)."""
    upper = compact.upper()
    if len(upper) != IBAN_LENGTHS.get(upper[:2]):
        return False
    # Check digits 00, 01 and 99 are those of 97, 98 and 02 to the remainder, and are never given out.
    if not "02" <= upper[2:4] <= "98":
        return False
    return int("".join(str(int(sign, 36)) for sign in upper[4:] + upper[:4])) % 97 == 1


def find_ibans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each IBAN, in one piece or in groups with single separators."""
    if _CHECK_DIGITS.search(text) is None:  # most texts
        return
    for found in _IBAN_START.finditer(text):
        length = IBAN_LENGTHS.get(found[0][:2].upper(), 0)
        compact, end = found[0], found.end()
        while len(compact) < length and (following := _IBAN_NEXT.match(text, end)) is not None:
            compact, end = compact + following[1], following.end()
        after = text[end : end + 1]
        if is_iban(compact) and not (after.isascii() and after.isalnum()):
            yield found.start(), end
