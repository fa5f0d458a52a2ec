"""Injection markers, the tool context, and the two exceptions a tool raises."""

import pickle

import pytest
from attrs.exceptions import FrozenInstanceError

from capfold.capabilities.frozen import FreezeError
from capfold.capabilities.injected import (
    FromCall,
    FromContext,
    FromDeps,
    InjectionError,
    ModelRetry,
    ToolContext,
    ToolFailed,
)


def test_context_is_read_only() -> None:
    """A tool context freezes the caller's JSON and refuses every write."""
    plain = {"user": {"id": 1}}
    context = ToolContext(context=plain)
    plain["user"]["id"] = 2
    assert {"user": {"id": 1}} == context.context
    with pytest.raises(FrozenInstanceError):
        context.run_id = "other"  # type: ignore[misc]  # the write under test
    with pytest.raises(TypeError):
        context.context["user"]["id"] = 3  # type: ignore[index]  # the write under test


def test_context_hides_deps() -> None:
    """Deps may hold secrets: the repr leaves them out, and they need not be hashable."""
    context = ToolContext(deps={"token": "s3cret"}, run_id="r")
    assert "s3cret" not in repr(context)
    assert hash(context) == hash(ToolContext(deps={"token": "s3cret"}, run_id="r"))


@pytest.mark.parametrize("marker", [FromContext, FromCall])
def test_default_is_frozen_and_fresh(marker: type[FromContext | FromCall]) -> None:
    """A default is frozen at birth, and each call gets plain containers that nobody else holds."""
    plain = {"ids": [1]}
    made = marker("k", default=plain)
    plain["ids"].append(2)
    first, second = made.fresh(), made.fresh()
    assert first == second == {"ids": [1]}
    assert first is not second
    assert made.has_default
    assert not marker("k").has_default
    assert marker("k", default=None).has_default


@pytest.mark.parametrize("marker", [FromContext, FromCall, FromDeps])
def test_keys_are_names(marker: type[FromContext | FromCall | FromDeps]) -> None:
    """A key is a string that is not empty."""
    with pytest.raises(TypeError):
        marker(3)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ValueError, match="key"):
        marker("")


def test_default_must_be_json() -> None:
    """A default that JSON cannot carry is refused at birth."""
    with pytest.raises(FreezeError):
        FromContext("k", default={1, 2})


@pytest.mark.parametrize("kind", [ModelRetry, ToolFailed])
def test_exceptions_carry_a_message(kind: type[ModelRetry | ToolFailed]) -> None:
    """Both exceptions need a sentence for the model, and survive pickling."""
    assert kind("use ISO dates").message == "use ISO dates"
    again = pickle.loads(pickle.dumps(kind("x")))  # noqa: S301  # our own bytes
    assert (kind, "x") == (type(again), again.message)
    with pytest.raises(ValueError, match="message"):
        kind(" ")
    with pytest.raises(TypeError, match="string"):
        kind(None)  # type: ignore[arg-type]  # the mistake under test


def test_injection_error_names_the_key() -> None:
    """The error carries the key, and its text is the plain sentence, not the repr of a LookupError."""
    error = InjectionError("no 'id'", "id")
    assert ("id", "no 'id'") == (error.key, str(error))
