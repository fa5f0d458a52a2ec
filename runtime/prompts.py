"""Prompt sources: instructions that are made when a run starts. Knows neither agents nor how a run goes on."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ..capabilities.state import RunState

# Of the run that is about to start: its ids, context and prompt are there, its instructions are not.
PromptSource: TypeAlias = Callable[[RunState], "str | Awaitable[str]"]


async def resolve(prompt: str | PromptSource, run: RunState) -> str:
    """Return the text of instructions. Raises TypeError when a source returns something else than a string."""
    if isinstance(prompt, str):
        return prompt
    found = prompt(run)
    text: object = await found if inspect.isawaitable(found) else found
    if type(text) is not str:
        raise TypeError(f"a prompt source returns a string, not {type(text).__name__}")
    return text
