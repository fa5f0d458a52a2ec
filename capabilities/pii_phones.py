"""Phone numbers in text. Bare digits are a number of anything: they count after a word such as "tel" only.

US numbers are found by an own pattern, those of other regions by `phonenumbers`, of the extra `pii`.
"""

import re
import sys
from collections.abc import Callable, Iterator

from .pii_cards import SEPARATORS
from .pii_cues import cue_before

OWN_REGION = "US"
_SEP = f"[{SEPARATORS}]"
_AREA = _EXCHANGE = "[2-9][0-9]{2}"
# A bracket, a separator or +1 tells a number: "(415) 555-0132", "415.555.0132", "+14155550132".
_FORMATTED = re.compile(
    rf"(?<![0-9A-Za-z])(?:"
    rf"(?:\+?1{_SEP}?)?(?:\({_AREA}\){_SEP}?|{_AREA}{_SEP}){_EXCHANGE}{_SEP}?[0-9]{{4}}"
    rf"|\+1{_SEP}?{_AREA}{_EXCHANGE}{_SEP}?[0-9]{{4}}"
    rf")(?=x\.?[0-9]|ext|[^0-9A-Za-z]|\Z)"  # an extension may touch it; any other letter tells an id
)
_ENDING = re.compile("[0-9]{4}")
_BARE = re.compile(rf"(?<!\w)1?{_AREA}{_EXCHANGE}[0-9]{{4}}(?!\w)")
_cue = cue_before(
    (
        *("telephones?", "tel", "phones?", "cellphone", "cell", "mobile", "fax", "sms", "whatsapp"),
        *("call(?:ing|ed)?", "dial", "ring", "hotline"),
        *("telefon", "telefax", "mobil", "handy", "téléphone", "teléfono", "telefono", "telefone", "móvil"),
    )
)


def find_us_phones(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each US number, its bracket and country code included."""
    if _ENDING.search(text) is None:  # most texts: the patterns below take twenty times as long to say so
        return
    for found in _FORMATTED.finditer(text):
        yield found.span()
    for found in _BARE.finditer(text):
        if _cue(text, found.start()):
            yield found.span()


def phone_finder(region: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    """Return the finder for numbers as they are written in a region, an ISO 3166 code of two letters.

    Raises ModuleNotFoundError where the extra `pii` is missing, ValueError for a region that nobody knows.
    """
    if region == OWN_REGION:
        return find_us_phones
    try:
        import phonenumbers  # noqa: PLC0415  # of an extra, and 60 ms
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"phone numbers of region {region!r} need the extra `pii`: pip install 'capfold[pii]' ({error})",
            name=error.name,
        ) from error

    if region not in phonenumbers.SUPPORTED_REGIONS:
        there = ", ".join(sorted(phonenumbers.SUPPORTED_REGIONS))
        raise ValueError(f"region {region!r} has no phone numbers of its own; there are {there}")

    def find(text: str) -> Iterator[tuple[int, int]]:
        # Its own bound on tries would let the numbers behind many others pass.
        matcher = phonenumbers.PhoneNumberMatcher(
            text, region, leniency=phonenumbers.Leniency.VALID, max_tries=sys.maxsize
        )
        for match in matcher:
            # At every leniency it takes bare digits, an order number among them.
            if not match.raw_string.isdigit() or _cue(text, match.start):
                yield match.start, match.end

    return find
