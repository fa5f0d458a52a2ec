"""The detector: its table of entities, spans, addresses, and that no text is too much for it."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import ENTITIES, Span, detect, pii_cards, pii_national, pii_phones
from capfold.capabilities.pii import DEFAULT_ENTITIES

ALL = tuple(ENTITIES)


def found(text: str, *entities: str) -> list[str]:
    """Return what is found of the entities, as it stands in the text."""
    return [text[span.start : span.end] for span in detect(text, entities or ALL)]


def test_the_usual_four() -> None:
    """Without names: mail, phone, social security number and card; neither bank account nor host."""
    text = "ada@x.org, (415) 555-0132, 123-45-6789, 4111 1111 1111 1111, DE89370400440532013000, 10.0.0.1"
    assert DEFAULT_ENTITIES == tuple(span.entity for span in detect(text))
    assert len(ALL) == len(detect(text, ALL))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to ada@example.com.", ["ada@example.com"]),
        ("<ada.b+c%d@mail.example.co.uk>", ["ada.b+c%d@mail.example.co.uk"]),
        ("jürgen@bücher.example, o'brien@x.ie", ["jürgen@bücher.example", "o'brien@x.ie"]),
        ("mailto:ada@xn--bcher-kva.xn--p1ai?subject=x", ["ada@xn--bcher-kva.xn--p1ai"]),
        ("?to=ada@example.com&x=1", ["ada@example.com"]),
        ("a@b.org@c.org", ["a@b.org@c.org"]),
        ("...ada@example.com...", ["ada@example.com"]),
        ("@ada, ada@localhost, ada@, @example.com, a@b.c, a@-b.com, x @ y.com", []),
        ("git@github.com:x/y.git", ["git@github.com"]),
        (
            "_ada@example.com_ bob@example.com--or c@x.org-",
            ["_ada@example.com", "bob@example.com", "c@x.org"],
        ),
        ("ada@example.com_2031 bob@example.com2", ["ada@example.com", "bob@example.com"]),
        ("/?to=ada%40example.com&x=1", ["ada%40example.com"]),
        ("संपर्क@डाटामेल.भारत।", ["संपर्क@डाटामेल.भारत"]),
        ("ju\u0308rgen@bu\u0308cher.example", ["ju\u0308rgen@bu\u0308cher.example"]),
    ],
)
def test_mail(text: str, expected: list[str]) -> None:
    """Of any script, in links too, without what stands around it or touches it; a name without a domain is none."""
    assert expected == found(text, "email")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from 192.168.1.1.", ["192.168.1.1"]),
        ("10.0.0.0/8 and 1.2.3.4:80", ["10.0.0.0", "1.2.3.4"]),
        ("version 1.2.3.4.5, 256.1.1.1, 1.2.3, 01.02.03.04", []),
        ("[2001:db8::1]:443, fe80::1: down", ["2001:db8::1", "fe80::1"]),
        ("::ffff:192.0.2.1", ["::ffff:192.0.2.1"]),
        ("at 12:30:45, std::vector, ::, aa:bb:cc:dd:ee:ff", []),
    ],
)
def test_hosts(text: str, expected: list[str]) -> None:
    """What the standard library accepts and nothing touches; times, versions and scopes are none."""
    assert expected == found(text, "ip")


def test_patterns_are_found_beside_entities() -> None:
    """An own regular expression is one more kind; an empty match is none."""
    spans = detect("EMP-1 ada@x.org", ["email"], patterns=[r"EMP-\d", r"(?=E)|zzz"])
    assert (Span(0, 5, "pattern"), Span(6, 15, "email")) == spans
    assert () == detect("EMP-1", (), patterns=())


def test_what_overlaps_is_one_span() -> None:
    """Two kinds that share a place: one span over both, named by the first."""
    assert (Span(0, 7, "pattern"),) == detect("abcdefg", (), patterns=["abcde", "cdefg", "d"])
    assert (Span(0, 2, "pattern"), Span(2, 4, "pattern")) == detect("abcd", (), patterns=["ab", "cd"])


@pytest.mark.parametrize(
    ("entities", "patterns", "region", "message"),
    [
        (["emial"], (), "US", "did you mean 'email'"),
        (["blood type"], (), "US", "there are email, phone"),
        (["stdnum:es.nifs"], (), "US", "no validator stdnum.es.nifs"),
        (["stdnum:../etc"], (), "US", "write 'stdnum:es.nif'"),
        (["stdnum:util"], (), "US", "no validator stdnum.util"),
        ((), ["("], "US", "no regular expression"),
        ((), ["x*"], "US", "matches the empty text"),
        (["phone"], (), "de", "did you mean 'DE'"),
        (["email"], (), "1", "two capital letters, not '1'$"),
        (["phone"], (), "XX", "no phone numbers of its own; there are AC, AD"),
    ],
)
def test_what_nobody_knows(entities: list[str], patterns: list[str], region: str, message: str) -> None:
    """A wrong name says which one may have been meant."""
    with pytest.raises(ValueError, match=message):
        detect("", entities, patterns=patterns, region=region)


texts = st.text(alphabet="0123456789 -.()+@:aDE\u00a0tel", max_size=60)


@given(texts)
def test_spans_are_apart_and_in_order(text: str) -> None:
    """Within the text, from left to right, none empty, none over another."""
    end = 0
    for span in detect(text, ALL):
        assert end <= span.start < span.end <= len(text)
        end = span.end


HOSTILE = {
    "digits": "1" * 200_000,
    "groups": "4111 " * 40_000,
    "ones": "1 " * 100_000,
    "cards": "4111111111111111 " * 10_000,
    "cards in letters": "a4111111111111111" * 10_000,
    "ats": "@" * 100_000,
    "names": "a" * 200_000 + "@",
    "labels": "a@" + "a-" * 100_000,
    "dots": "a@" + "a." * 100_000,
    "mails": "x@x." * 40_000,
    "marks": "a\u0308" * 100_000 + "@" + "a\u0308" * 100_000,
    "colons": ":" * 200_000,
    "hex": "a:" * 100_000,
    "accounts": "DE89 " * 40_000,
    "cues": "tel no " * 30_000,
    "halves": "123-45-" * 30_000,
    "brackets": "(415) " * 30_000,
    "letters": "x" * 200_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_is_too_much(name: str) -> None:
    """Texts made to have patterns look at everything again and again: of any other order this would take hours."""
    detect(HOSTILE[name], ALL)


@settings(max_examples=20)
@given(st.integers(1, 400), st.sampled_from(["4111 ", "4 ", "123456 ", "411111111111 ", "8-"]))
def test_work_per_group_of_digits_is_bounded(count: int, group: str) -> None:
    """A window is tried at most once for each of its possible ends, however many groups there are."""
    tried = 0
    scheme_of = pii_cards.scheme_of

    def counted(digits: str) -> str | None:
        nonlocal tried
        tried += 1
        return scheme_of(digits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pii_cards, "scheme_of", counted)
        list(pii_cards.find_cards(group * count))
    assert tried <= 5 * count


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the libraries: the error says what to install, for which entity."""
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    monkeypatch.setattr(pii_national, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"region 'DE' need the extra `pii`.*capfold\[pii\]"):
        pii_phones.phone_finder("DE")
    with pytest.raises(ModuleNotFoundError, match=r"'stdnum:es.nif' needs python-stdnum.*capfold\[pii\]"):
        pii_national.national_finder("stdnum:es.nif")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NIF 54362315K, 54362315-K.", ["54362315K", "54362315-K"]),
        ("12345678A and 5 4 3 6 2 3 1 5 K", []),
        ("order 54362315K7", []),
    ],
)
def test_national_ids(text: str, expected: list[str]) -> None:
    """What a validator of stdnum accepts, in one piece or with single joints."""
    assert expected == found(text, "stdnum:es.nif")


@pytest.mark.parametrize("entity", ALL)
def test_every_entity_is_found_alone(entity: str) -> None:
    """Each name of the table works, and finds none of the other kinds."""
    examples = {
        "email": "ada@example.com",
        "phone": "(415) 555-0132",
        "ssn": "123-45-6789",
        "credit_card": "5555 5555 5555 4444",
        "iban": "GB82 WEST 1234 5698 7654 32",
        "ip": "2001:db8::8a2e:370:7334",
    }
    assert set(ENTITIES) == set(examples)
    assert [examples[entity]] == found(" | ".join(examples.values()), entity)
