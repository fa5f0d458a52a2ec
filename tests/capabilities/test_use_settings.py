"""UseSettings: settings for one request, over those that were there."""

import pytest
from hypothesis import given

from capfold.capabilities import FreezeError, RunState, UseSettings, call, fold, tool, when
from tests.capabilities.shaping_kit import check_laws, desk, reloaded
from tests.strategies import json_objects


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"saw {n}"


async def test_settings_hold_for_one_request() -> None:
    """Merged over the agent's where the condition holds, and gone at the next step."""
    first = when(lambda state: state.run_step == 1, UseSettings({"temperature": 0, "top_p": None}))
    made, model = desk(
        [call("look", {"n": 1}), "done"], first, tools=[look], settings={"temperature": 1, "seed": 7}
    )
    await made.run("go")
    expected = [{"temperature": 0, "seed": 7, "top_p": None}, {"temperature": 1, "seed": 7}]
    assert expected == [request.settings for request in model.requests]


@given(json_objects(), json_objects())
def test_the_later_one_wins(a: dict[str, object], b: dict[str, object]) -> None:
    """Two in a list are one merged mapping; merging again is silent."""
    if not a or not b:
        return
    both = [UseSettings(a), UseSettings(b, key="b")]
    made = fold(both, "before_model_request", RunState())
    assert {**a, **b} == made.settings
    assert fold(both[1:], "before_model_request", made) is made


def test_a_setting_may_have_any_name() -> None:
    """Also one that Python's methods use."""
    made = fold([UseSettings({"self": 1, "settings": 2})], "before_model_request", RunState())
    assert {"self": 1, "settings": 2} == made.settings


def test_wrong_settings_are_refused() -> None:
    """Nothing to set, no mapping, and what is no JSON, each with its own error."""
    with pytest.raises(ValueError, match="empty: name a setting"):
        UseSettings({})
    with pytest.raises(TypeError, match="must be a mapping"):
        UseSettings([("temperature", 0)])  # type: ignore[arg-type]  # the value under test
    with pytest.raises(FreezeError, match="temperature"):
        UseSettings({"temperature": float("nan")})


def test_laws_and_round_trip() -> None:
    """It keeps the laws, and comes back from its description."""
    capability = UseSettings({"temperature": 0, "stop": ["a", {"b": None}]})
    check_laws(capability)
    assert capability == reloaded(capability)
