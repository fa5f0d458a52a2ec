"""Requests and decisions as JSON: what a web page or a command line shows a person, and what it sends back.

Knows nothing of runs: whether a decision fits a request is checked when it is used.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from attrs import NOTHING, fields

from ..capabilities.frozen import FrozenDict
from .decisions import DECISIONS, ApprovalRequest, Decision
from .errors import CodecError, DecisionError


def write_requests(requests: Sequence[ApprovalRequest]) -> str:
    """Return the requests of `result.pending` as the text of a JSON array, in their order."""
    from .codec import to_text  # noqa: PLC0415  # late_codec says why

    return to_text(tuple(requests), type=tuple[ApprovalRequest, ...])


def read_decisions(text: str) -> dict[str, Decision]:
    """Return the decisions of a JSON object, by the digest of the request that each is for, as `resume` takes them.

    Each is an object whose `"type"` is `"Approve"`, `"Deny"`, `"Edit"` or `"Answer"`; its other members are that
    record's fields, of which those with a default may be left out. Raises DecisionError, which names the digest
    where one decision is at fault; TypeError when `text` is no string.
    """
    from .codec import from_json, from_text  # noqa: PLC0415  # late_codec says why

    try:
        given = from_text(text, FrozenDict[object])
    except CodecError as error:
        raise DecisionError(f"decisions are a JSON object, digest -> decision: {error}") from error
    found: dict[str, Decision] = {}
    for digest, one in given.items():
        try:
            found[digest] = cast(Decision, from_json(_whole(one), Decision))
        except CodecError as error:
            raise DecisionError(f"the decision for {digest!r:.80} cannot be read: {error}", digest) from error
    return found


# By the name of a decision: the fields that may be left out, and what they are then.
_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    kind.__name__: {one.name: one.default for one in fields(kind) if one.default is not NOTHING}
    for kind in DECISIONS
}


def _whole(given: object) -> object:
    """Return a decision with the fields that were left out; the codec, which is strict, wants them all."""
    kind = given.get("type") if isinstance(given, FrozenDict) else None
    if not isinstance(given, FrozenDict) or not isinstance(kind, str):
        return given
    return FrozenDict({**_DEFAULTS.get(kind, {}), **given})
