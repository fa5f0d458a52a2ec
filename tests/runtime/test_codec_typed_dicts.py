"""TypedDicts of a module whose annotations are all text, there and back."""

from __future__ import annotations

from datetime import date
from typing import Any, NotRequired, Required, TypedDict

import pytest
from attrs import frozen

from capfold.runtime.codec import from_json, to_json
from capfold.runtime.errors import CodecError
from capfold.runtime.output import output_type


class Inner(TypedDict, total=False):
    """One key must be there."""

    must: Required[int]
    others: list[Outer]


class Outer(TypedDict):
    """One key may be left out."""

    inner: Inner
    due: NotRequired[date]


@frozen
class Holder:
    """Has one in a field."""

    it: Outer


WITHOUT: Outer = {"inner": {"must": 1}}
WITH: Outer = {"inner": {"must": 1, "others": [WITHOUT]}, "due": date(2024, 2, 29)}


@pytest.mark.parametrize("value", [WITH, WITHOUT])
def test_keys_that_may_be_left_out(value: Outer) -> None:
    """`NotRequired` counts though it is text: left out they stay out, and given they are read by their type."""
    for whole, kind in ((Holder(value), Holder), (value, Outer)):
        written = to_json(whole, type=kind)
        assert whole == from_json(written, kind)
        assert (whole, None) == output_type(kind).read(str(written).replace("'", '"'))


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ({"it": {"inner": {}}}, ["$.it.inner.must"]),
        ({"it": {"inner": {"must": "1"}, "due": 3, "more": 1}}, ["$.it.inner.must", "$.it.due", "$.it.more"]),
        ({"it": []}, ["$.it"]),
    ],
)
def test_what_is_wrong(data: Any, paths: list[str]) -> None:  # Any: JSON
    """All problems at once, each with its path."""
    with pytest.raises(CodecError) as caught:
        from_json(data, Holder)
    assert all(path in f"{caught.value.path} {caught.value}" for path in paths)
