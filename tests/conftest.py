"""What every test gets: both event loops, and the Hypothesis profiles. Nothing here knows capfold."""

import os

import pytest
from hypothesis import Phase, settings

settings.register_profile("dev", deadline=None)
# CI must give the same verdict on the same commit, and a failure must be repeatable elsewhere.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
# That an example fails is all that is asked where mutants are tried (tests/mutation).
settings.register_profile("mutants", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test, and each test that asks for this fixture, once per event loop."""
    backend: str = request.param
    return backend
