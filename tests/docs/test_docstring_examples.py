"""Every public capability shows itself at work in its docstring, and what is shown there happens."""

import doctest
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import capfold.capabilities
import capfold.runtime
from capfold.capabilities import Capability
from capfold.capabilities.capability import AnyCapability

# What an example needs that is not in the base install: its test is skipped where that is missing.
NEEDS = {"AgentHooks": "agent_hooks"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def capabilities() -> Iterator[type[AnyCapability]]:
    """Yield the public classes of capabilities of both packages, but for their base."""
    for package in (capfold.capabilities, capfold.runtime):
        for name in dir(package):
            thing: object = getattr(package, name)
            if inspect.isclass(thing) and issubclass(thing, Capability) and thing is not Capability:
                yield thing


def name_of(cls: type) -> str:
    """Return the name by which a test of a class goes."""
    return cls.__name__


@pytest.mark.parametrize("cls", list(capabilities()), ids=name_of)
def test_the_example_of_a_capability_runs(
    cls: type[AnyCapability], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is an example, it runs where files may be written, and prints what stands below each line."""
    if cls.__name__ in NEEDS:
        pytest.importorskip(NEEDS[cls.__name__], reason=f"the example of {cls.__name__} needs an extra")
    monkeypatch.chdir(tmp_path)
    # The package's own names are what a reader has imported; all else the example imports itself.
    names: dict[str, object] = {
        name: getattr(capfold.capabilities, name) for name in dir(capfold.capabilities)
    }
    module = sys.modules[cls.__module__]
    source = inspect.getsourcefile(module) or cls.__module__
    example = doctest.DocTestParser().get_doctest(cls.__doc__ or "", names, cls.__name__, source, 0)
    assert example.examples, f"{cls.__name__} has no example: lines of its docstring that begin with >>>"
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=told.append)
    assert 0 == result.failed, "".join(told)
