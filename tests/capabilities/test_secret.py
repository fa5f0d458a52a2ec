"""Secrets are names until somebody reveals them."""

import pytest

from capfold.capabilities.secret import Secret


def test_a_secret_is_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither repr nor comparison reads the environment; `reveal` does, each time."""
    monkeypatch.setenv("TOKEN", "s3cret")
    secret = Secret.env("TOKEN")
    assert "s3cret" not in repr(secret)
    assert Secret("TOKEN") == secret
    assert secret.reveal() == "s3cret"
    monkeypatch.setenv("TOKEN", "other")
    assert secret.reveal() == "other"


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Revealing what is not set is a LookupError with the name."""
    monkeypatch.delenv("TOKEN", raising=False)
    with pytest.raises(LookupError, match="TOKEN"):
        Secret.env("TOKEN").reveal()


@pytest.mark.parametrize("name", ["", "TOKEN=s3cret"])
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    """A value pasted where the name belongs is noticed."""
    with pytest.raises(ValueError, match="name of an environment variable"):
        Secret.env(name)
