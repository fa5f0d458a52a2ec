"""`ToolUnknown`: a tool that was cut off says that nobody knows, whatever it declares about itself."""

from typing import TypedDict

import pytest

from capfold.capabilities import call, tool
from capfold.capabilities.injected import ToolUnknown
from tests.runtime.desk import contents, make, results


class Hints(TypedDict, total=False):
    """What a tool declares."""

    read_only: bool
    idempotent: bool


@pytest.mark.parametrize("hints", [Hints(), Hints(read_only=True), Hints(idempotent=True)])
async def test_the_outcome_is_unknown_with_its_message(hints: Hints) -> None:
    """Any other exception of a tool declared idempotent is a failure; this one leaves the effect open."""

    @tool(**hints)
    def send() -> str:
        """Send."""
        raise ToolUnknown("the line went dead")

    result = await make([call("send"), "done"], tools=[send]).run("go")
    assert [("send", "unknown")] == results(result.messages)
    assert ["the line went dead"] == contents(result.messages)


def test_it_needs_a_message() -> None:
    """As the other two do: the model reads it."""
    with pytest.raises(ValueError, match="ToolUnknown needs a message"):
        raise ToolUnknown(" ")
