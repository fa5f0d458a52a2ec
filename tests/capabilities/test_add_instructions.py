"""Instructions: a paragraph in the instructions of each request, once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import Instructions, RunState, TrimMessages, call, fold, tool
from tests.capabilities.shaping_kit import check_laws, desk, reloaded

TEXTS = ("Be brief.", "Be kind.\n\nAlways.", "Be", "brief.")


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"saw {n}"


async def test_it_is_in_every_request_after_the_agents_own() -> None:
    """In list order, once however often it is listed, and no trimming takes it away."""
    listed = [
        Instructions("Be brief."),
        TrimMessages(1),
        Instructions("Be kind.", key="kind"),
        Instructions("Be brief.", key="again"),
    ]
    made, model = desk([call("look", {"n": 1}), "done"], *listed, tools=[look], instructions="You look.")
    await made.run("go")
    assert ["You look.\n\nBe brief.\n\nBe kind."] * 2 == [request.instructions for request in model.requests]


async def test_what_the_agent_says_itself_is_not_said_twice() -> None:
    """A paragraph of the agent's own instructions counts as there; a part of a sentence does not."""
    made, model = desk(
        ["a"], Instructions("Be brief."), Instructions("Be", key="b"), instructions="Be brief."
    )
    await made.run("go")
    assert "Be brief.\n\nBe" == model.requests[0].instructions


@given(st.lists(st.sampled_from(TEXTS), max_size=6), st.sampled_from(["", "Own.", "Be"]))
def test_each_text_stands_there_once(texts: list[str], own: str) -> None:
    """The instructions are the agent's, then each new text once, in order; once more changes nothing."""
    listed = [Instructions(text, key=str(i)) for i, text in enumerate(texts)]
    made = fold(listed, "before_model_request", RunState(instructions=own))
    expected = list(dict.fromkeys([*filter(None, [own]), *texts]))
    assert "\n\n".join(expected) == made.instructions
    assert fold(listed, "before_model_request", made) is made


def test_blank_texts_are_refused() -> None:
    """Nothing to say is a ValueError, no text a TypeError."""
    for blank in ("", " \n"):
        with pytest.raises(ValueError, match="blank"):
            Instructions(blank)
    with pytest.raises(TypeError, match="must be a string"):
        Instructions(None)  # type: ignore[arg-type]  # the value under test


def test_laws_and_round_trip() -> None:
    """It keeps the laws, and comes back from its description."""
    check_laws(Instructions("Be brief."))
    assert Instructions("Be brief.") == reloaded(Instructions("Be brief."))
