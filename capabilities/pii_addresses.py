"""Addresses in text: of mail, and of hosts by number. Linear in the text, whatever stands in it."""

import re
from collections.abc import Iterator

# What a local part is made of besides letters and digits of any script. Not all that the RFC allows: `=`, `/`
# or `&` before an address belong to the link around it far more often than to its owner.
_LOCAL = frozenset("._%+'-")
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.){{1,16}}(?:xn--[0-9A-Za-z-]{{1,59}}|[^\W\d_]{{2,63}})(?![\w-])")
_LONGEST_DOMAIN = 254

_V4 = re.compile(r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?!\w|\.[0-9])")
_V6 = re.compile(r"[0-9A-Fa-f:.]+")
_LONGEST_V6 = 45
_SHORTEST_V6 = 3
_COLONS = 2


def find_emails(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each mail address, without a dot that ends the sentence."""
    free = 0  # a sign belongs to one address: so a long run of signs is walked through once
    place = text.find("@")
    while place != -1:
        start = place
        while start > free and (text[start - 1].isalnum() or text[start - 1] in _LOCAL):
            start -= 1
        while start < place and not (text[start].isalnum() or text[start] in "_+"):
            start += 1
        domain = _DOMAIN.match(text, place + 1, place + 1 + _LONGEST_DOMAIN)
        if start < place and domain is not None:
            yield start, domain.end()
        free = place + 1
        place = text.find("@", free)


def find_ips(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each IPv4 and IPv6 address that the standard library accepts."""
    for found in _V4.finditer(text):
        if _is_ip(found[0]):
            yield found.span()
    if text.count(":") < _COLONS:
        return
    for found in _V6.finditer(text):
        run = found[0]
        start = found.start() + len(run) - len(run.lstrip("."))
        word = run.strip(".")
        if word.endswith(":") and not word.endswith("::"):  # "fe80::1: down"
            word = word[:-1]
        end = start + len(word)
        short = not _SHORTEST_V6 <= len(word) <= _LONGEST_V6 or word.count(":") < _COLONS
        if short or _touches(text, start - 1) or _touches(text, end):
            continue
        if _is_ip(word):
            yield start, end


def _touches(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


def _is_ip(text: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415  # 5 ms, for texts that have such a candidate

    try:
        ip_address(text)
    except ValueError:
        return False
    return True
