"""Files in messages: which bytes a part has, and what is refused before anything is kept."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import AudioPart, FilePart, ImagePart, TextPart
from capfold.capabilities.attached_files import (
    AttachmentError,
    Medium,
    bytes_of,
    map_media,
    media,
    reference_in,
    reference_to,
)

KINDS: tuple[type[Medium], ...] = (ImagePart, AudioPart, FilePart)


@given(st.sampled_from(KINDS), st.binary(max_size=100), st.integers(0, 100))
def test_bytes_as_they_are_and_in_a_url(kind: type[Medium], data: bytes, most: int) -> None:
    """Both forms hold the same bytes, and both are refused beyond the limit."""
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    for part in (kind(data=data, media_type="image/png"), kind(url=url, media_type="image/png")):
        if len(data) <= most:
            assert data == bytes_of(part, most)
        else:
            with pytest.raises(AttachmentError, match=f"at most {most} are kept"):
                bytes_of(part, most)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("data:image/png;base64,QUJ", "no valid base64"),
        ("data:image/png;base64,QU J", "no valid base64"),
        ("data:image/png;base64,Q*==", "no valid base64"),
        ("data:image/png;base64,é", "no valid base64"),
        ("data:text/plain,hello", "not in base64"),
        ("data:", "not in base64"),
        ("https://example.org/a.png", "it is a URL, 'https://example.org/a.png'"),
        ("HTTP://example.org", "it is a URL"),
        ("file:///etc/passwd", "path of a local file, which is not read"),
        ("/etc/passwd", "path of a local file"),
        ("C:\\secret.txt", "path of a local file"),
        ("../secret.txt", "path of a local file"),
        ("", "path of a local file"),
        ("ftp://example.org/a", "it is a 'ftp' URL"),
    ],
)
def test_what_holds_no_bytes(url: str, why: str) -> None:
    """Bad base64, URLs and paths are refused, each with its reason and with what would do."""
    with pytest.raises(AttachmentError, match=why):
        bytes_of(ImagePart(url=url, media_type="image/png"), 1_000)


def test_a_large_url_is_refused_before_it_is_decoded() -> None:
    """Its length tells, so even bad base64 is refused for its size."""
    with pytest.raises(AttachmentError, match="at most 10 are kept"):
        bytes_of(FilePart(url="data:x/y;base64," + "*" * 1_000, media_type="x/y"), 10)


@given(st.sampled_from(KINDS), st.text(max_size=20))
def test_references(kind: type[Medium], ref: str) -> None:
    """A reference is of the kind and type of its part, and leads back to what the store gave."""
    part = kind(data=b"x", media_type="image/png")
    made = reference_to(ref, part)
    assert (kind, "image/png", ref) == (type(made), made.media_type, reference_in(made))
    assert reference_in(part) is None
    assert reference_in(kind(url="https://example.org", media_type="x/y")) is None


def test_only_media_are_changed() -> None:
    """Text is left alone, and a content in which nothing changed is the identical one."""
    image = ImagePart(data=b"x", media_type="image/png")
    content = (TextPart("a"), image, TextPart("b"))
    assert [image] == list(media(content))
    assert [] == list(media("text"))
    assert map_media(content, lambda part: part) is content
    assert "text" == map_media("text", lambda _: TextPart("x"))
    assert (TextPart("a"), TextPart("x"), TextPart("b")) == map_media(content, lambda _: TextPart("x"))
