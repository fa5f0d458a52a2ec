"""Each async case is driven by `run` and by `stream`; what came of it is noted where somebody asks for it."""

import inspect

import pytest

from tests.corruption import driving


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each async test once for each way of driving."""
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.parametrize("streamed", driving.WAYS, indirect=True)


@pytest.fixture(autouse=True)
def streamed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> driving.Streamed:
    """Drive the runs of a test one way; return the events of each run that was streamed, so far."""
    events: driving.Streamed = []
    driving.use(getattr(request, "param", "run"), events, monkeypatch)
    return events
