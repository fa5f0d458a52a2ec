"""One AsyncOpenAI client for each event loop and configuration, closed when its loop ends.

Connections belong to the event loop that opened them: a client that outlives its loop, as one kept in a model
that is used by two `run_sync`, fails on the second. Knows nothing of messages. openai is imported when the
first client is built, since that costs 400 ms.
"""

import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, TypeAlias

from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    from openai import AsyncOpenAI

KEY_VARIABLE = "OPENAI_API_KEY"
BASE_URL_VARIABLE = "OPENAI_BASE_URL"
_OPENAI_URL = "https://api.openai.com/v1"  # the client's own default
# What the client reads by itself: a change of any makes another client.
_VARIABLES = (KEY_VARIABLE, BASE_URL_VARIABLE, "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")

_Configuration: TypeAlias = tuple[str | None, ...]
_Opened: TypeAlias = "dict[_Configuration, tuple[AsyncOpenAI, AsyncGenerator[AsyncOpenAI, None]]]"
_OPENED: RunVar[_Opened] = RunVar("capfold_openai_clients")


def check_key(base_url: str | None) -> None:
    """Raise ValueError when requests would go to OpenAI itself and there is no key for it."""
    elsewhere = base_url or os.environ.get(BASE_URL_VARIABLE)
    if not elsewhere and not os.environ.get(KEY_VARIABLE):
        raise ValueError(
            f"there is no key for OpenAI: set the environment variable {KEY_VARIABLE}, "
            f"give client=AsyncOpenAI(...), or name another server by base_url= or {BASE_URL_VARIABLE}"
        )


def url_of(base_url: str | None) -> str:
    """Return where a client without a base URL of its own sends its requests."""
    return base_url or os.environ.get(BASE_URL_VARIABLE) or _OPENAI_URL


async def _open(
    base_url: str | None, opened: _Opened, configuration: _Configuration
) -> "AsyncGenerator[AsyncOpenAI, None]":
    """Yield a new client, and close it when the event loop ends.

    asyncio and trio both close what async generators are left when a loop ends: the one hook that they share.
    """
    from openai import AsyncOpenAI

    # A server that is not OpenAI's may want no key, but the client always wants one.
    key = os.environ.get(KEY_VARIABLE) or "none"
    client = AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)
    try:
        yield client
    finally:
        opened.pop(configuration, None)
        await client.close()


async def client_of_loop(base_url: str | None) -> "AsyncOpenAI":
    """Return the running loop's client for `base_url`; None: the environment's, or OpenAI's.

    Its own retries are off: they would be invisible to the ledger.
    """
    configuration = (base_url, *map(os.environ.get, _VARIABLES))
    try:
        opened = _OPENED.get()
    except LookupError:
        _OPENED.set(opened := {})
    found = opened.get(configuration)
    if found is None:
        opening = _open(base_url, opened, configuration)
        found = opened[configuration] = (await anext(opening), opening)
    return found[0]
