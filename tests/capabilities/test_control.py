"""What holds for all that control a run: the laws, a complete description, the same after dump and load."""

import pytest
from hypothesis import HealthCheck, settings

from capfold.capabilities import (
    RefuseTools,
    RequireApproval,
    RunBudget,
    SharedBudget,
    StopOnRepeat,
    ToolBudget,
    is_declared_destructive,
    is_read_only,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import dump_capabilities, load_capabilities
from capfold.runtime.laws import check_capability

FEW = settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
ALL: list[AnyCapability] = [
    RefuseTools(is_declared_destructive, unless="may"),
    RequireApproval({"pay"}, prompt="{tool}{x}", timeout=5, always="tool"),
    ToolBudget({"pay": 1}, on_exceeded="refuse"),
    ToolBudget(2, tools=is_read_only),
    RunBudget(max_steps=2, max_requests=3, max_tokens=50),
    SharedBudget("web", 3, tools={"pay"}, on_exceeded="stop"),
    StopOnRepeat(2),
    StopOnRepeat(2, longest=3, on_repeat="refuse"),
    StopOnRepeat(2, tools=is_read_only, on_repeat="ask"),
]


@pytest.mark.parametrize("capability", ALL, ids=lambda made: type(made).__name__)
def test_the_laws_hold(capability: AnyCapability) -> None:
    """On runs of all kinds, whatever its parameters."""
    check_capability(capability, settings=FEW)


@pytest.mark.parametrize("capability", ALL, ids=lambda made: type(made).__name__)
def test_it_comes_back_as_it_was(capability: AnyCapability) -> None:
    """Its description is complete, and an equal one is loaded from it."""
    assert capability.describe().complete
    assert (capability,) == load_capabilities(dump_capabilities([capability]), allowed=[])
