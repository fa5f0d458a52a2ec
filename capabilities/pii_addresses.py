"""Addresses in text: of mail, and of hosts by number. Linear in the text, whatever stands in it."""

import re
from collections.abc import Iterator

_AT = re.compile("@|%40")  # the second as in a link: ?to=ada%40example.com
# What a local part is made of besides letters and digits of any script. Not all that the RFC allows: `=`, `/`
# or `&` before an address belong to the link around it far more often than to its owner.
_LOCAL = frozenset("._%+'-")
# Signs that are written with a letter: accents that stand by themselves, and the vowels of Indic and other scripts.
# Python counts none of them among letters.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e3a\u0e47-\u0e4e"
    "\u0eb1-\u0ebc\u0ec8-\u0ece\u0f18-\u0f3f\u0f71-\u0fbc\u102b-\u103e\u1056-\u109d\u17b4-\u17d3\u3099\u309a"
)
_MARK = re.compile(f"[{_MARKS}]")
_SIGN = rf"(?:[^\W_]|[{_MARKS}])"
_LABEL = rf"{_SIGN}(?:[\w{_MARKS}-]{{0,61}}{_SIGN})?"
# What touches its end is no part of it, so that "_ada@example.com_" or "ada@example.com-2" hide nothing.
_DOMAIN = re.compile(
    rf"(?:{_LABEL}\.){{1,16}}(?:xn--[0-9A-Za-z](?:[0-9A-Za-z-]{{0,58}}[0-9A-Za-z])?|(?:[^\W\d_]|[{_MARKS}]){{2,63}})"
)
_LONGEST_DOMAIN = 254

_V4 = re.compile(r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?!\w|\.[0-9])")
_V6 = re.compile(r"[0-9A-Fa-f:.]+")
_LONGEST_V6 = 45
_SHORTEST_V6 = 3
_COLONS = 2


def find_emails(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each mail address, without a dot that ends the sentence."""
    free = 0  # a sign belongs to one address: so a long run of signs is walked through once
    for at in _AT.finditer(text):
        place = start = at.start()
        while start > free and (text[start - 1] in _LOCAL or _is_sign(text[start - 1])):
            start -= 1
        while start < place and not (text[start] in "_+" or _is_sign(text[start])):
            start += 1
        free = at.end()
        domain = _DOMAIN.match(text, free, free + _LONGEST_DOMAIN)
        if start < place and domain is not None:
            yield start, domain.end()


def _is_sign(sign: str) -> bool:
    return sign.isalnum() or (not sign.isascii() and _MARK.match(sign) is not None)


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
