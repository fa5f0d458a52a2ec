"""Records that a Literal field tells apart, in unions of the codec: no tag beside a field that is one."""

import json
from typing import Literal

import pytest
from attrs import frozen

from capfold.runtime.codec import from_json, from_text, to_text
from capfold.runtime.codec_literals import discriminator
from capfold.runtime.errors import CodecError
from tests.runtime.output_kinds import Cat, Dog, Node


@frozen
class Owner:
    """Has a union of records in its fields."""

    pet: Cat | Dog
    others: tuple[Cat | Dog | None, ...] = ()


@frozen
class Mixed:
    """A field that is not always a Literal."""

    type: str
    lives: int


@frozen
class Kitten:
    """Says the same as a Cat."""

    type: Literal["kitten", "cat"]


@frozen
class Maybe:
    """Need not say what it is."""

    type: Literal["maybe"] = "maybe"


def test_the_field_is_the_tag() -> None:
    """A field called `type`, which a tag would overwrite, is one already; the right class comes back."""
    owner = Owner(Dog("dog", 1), (Cat("cat", 9), None))
    text = to_text(owner)
    assert {"type": "dog", "lives": 1} == json.loads(text)["pet"]
    assert owner == from_text(text, Owner)


@pytest.mark.parametrize("said", [{"type": "cow", "lives": 1}, {"lives": 1}, {"type": 1, "lives": 1}, []])
def test_another_is_refused(said: object) -> None:
    """What no member says is a CodecError at its place, with what is legal."""
    with pytest.raises(CodecError) as caught:
        from_json({"pet": said, "others": []}, Owner)
    assert "$.pet" == caught.value.path


def test_what_is_no_discriminator() -> None:
    """One record, a field that one of them lacks, need not say, shares a value in, or has as any text."""
    told = discriminator([Cat, Dog])
    assert told is not None
    assert ("type", {"cat": Cat, "dog": Dog}) == (told.name, told.kinds)
    for others in ([], [Node], [Mixed], [Kitten], [Maybe]):
        assert discriminator([Cat, *others]) is None
