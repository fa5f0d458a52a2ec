"""OpenAIModel: chat completions or responses by the openai client, for OpenAI and any compatible server.

What the bytes say is the business of `openai_apis` and what it names, how they are sent that
of `openai_post` and `openai_stream`, what a failure means that of `openai_failures`.
Knows nothing of runs: each attempt is the meter's and whoever calls decides on another one.
"""

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import field, frozen

from ..capabilities.frozen import EMPTY, FrozenDict, Json, freeze_mapping
from ..capabilities.messages import AssistantMessage
from .models import Meter, ModelError, ModelPart, ModelProfile, ModelRequest, refuse_if_forbidden
from .openai_apis import APIS, Api
from .openai_client import check_key, client_of_loop, url_of
from .openai_parts import Unsendable
from .openai_post import Post, whole_response
from .openai_stream import streamed
from .openai_wire import Encoded

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# What OpenAI's models can do. A compatible server that cannot gets a profile that says so.
OPENAI_PROFILE = ModelProfile(tools=True, json_schema=True, images=True, audio=True, files=True)


def _unretried(client: "AsyncOpenAI | None") -> "AsyncOpenAI | None":
    if client is None:
        return None
    if not inspect.iscoroutinefunction(getattr(client, "post", None)):
        raise TypeError(f"client must be an openai.AsyncOpenAI, not {type(client).__name__}")
    return client.with_options(max_retries=0)  # the client's own retries would be invisible to the ledger


def _settings(value: object) -> FrozenDict[Json]:
    return freeze_mapping(value, "settings")


@frozen(eq=False)
class OpenAIModel:
    """A model behind the chat completions API, or the responses API: `api` "chat" or "responses".

    The records of both are equal for the same words and calls. The responses API gets the whole history in each
    request, and nothing is stored with the provider; its reasoning comes and goes encrypted, which models that are
    known to reason are asked for (`settings={"include": [...]}` replaces that). An image, sound or file in a tool's
    result stands there on the responses API; on chat, where a result is text, it follows in a user message.

    `client`: an AsyncOpenAI of yours, never closed here and used without its retries; one made for Azure
    needs its `azure_deployment`. Without it, a client is made at the first request from OPENAI_API_KEY and
    `base_url` or OPENAI_BASE_URL, one for each event loop, and closed as the loop ends. `timeout`: seconds
    for one whole request, None = no bound. `settings`: fields of the request body, as `temperature`; those of
    a run win, and None unsets one; `tool_choice` and `parallel_tool_calls` are left out of a request without
    tools. `profile`: what the model can do, by default what OpenAI's can.

    Raises ValueError for a missing key, another `api`, a bad URL, timeout or setting.
    """

    name: str = field()
    client: "AsyncOpenAI | None" = field(default=None, converter=_unretried, kw_only=True, repr=False)
    api: str = field(default="chat", kw_only=True)
    base_url: str | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=60.0, kw_only=True)
    settings: FrozenDict[Json] = field(default=EMPTY, converter=_settings, kw_only=True)
    profile: ModelProfile = field(default=OPENAI_PROFILE, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check it all, without importing openai."""
        if type(self.name) is not str or not self.name:
            raise ValueError(f"a model's name is a string that is not empty, not {self.name!r}")
        if self.api not in APIS:
            raise ValueError(f"api must be {' or '.join(map(repr, APIS))}, not {self.api!r}")
        if self.timeout is not None and (type(self.timeout) not in (int, float) or not self.timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds or None, not {self.timeout!r}")
        self._api.check(self.settings)
        if self.base_url is not None and not self.base_url.lower().startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, not be {self.base_url!r}")
        if self.client is None:
            check_key(self.base_url)
        elif self.base_url is not None:
            raise ValueError("base_url is the client's own when client= is given")

    @property
    def api_url(self) -> str:
        """Where requests go, by which a price list knows whose model this is."""
        return url_of(self.base_url) if self.client is None else str(self.client.base_url)

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Send one request, charged just before it leaves; never tries again by itself.

        Raises ModelError for each way it can fail; "bad_request" without a charge for what the API or this
        model cannot carry, such as a sound by URL, and for a setting that the API spells otherwise.
        """
        encoded = self._encoded(request)
        post = await self._post(encoded.body)
        meter.charge()
        return self._api.decode(await whole_response(post), encoded.output)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Send one request, charged just before it leaves, and give its answer as it comes.

        The message is equal to that of `request` for the same answer, and the texts of the deltas make up its
        text. The text of a structured output is its JSON, in pieces; in one piece, at the end, where it is asked
        for by an output tool or boxed (as a number is). `timeout` bounds the waits for the server. Raises
        ModelError as `request` does, and "connection" for a stream that ends before the answer does.
        """
        encoded = self._encoded(request)
        post = await self._post(encoded.body[:-1] + b"," + self._api.streaming + b"}")
        meter.charge()
        async with streamed(post, self._api.assembler(encoded.output), request.step) as parts:
            yield parts

    def _encoded(self, request: ModelRequest) -> Encoded:
        refuse_if_forbidden(self.name)
        try:
            return self._api.encode(request, self.name, self.profile, self.settings)
        except Unsendable as error:
            raise ModelError("bad_request", str(error), retryable=False) from error

    async def _post(self, body: bytes) -> Post:
        return Post(await self._connect(), self._api.path, body, self.timeout)

    @property
    def _api(self) -> Api:
        return APIS[self.api]

    async def _connect(self) -> "AsyncOpenAI":
        if self.client is not None:
            return self.client
        try:
            check_key(self.base_url)  # the environment may have changed since
        except ValueError as error:
            raise ModelError("auth", str(error), retryable=False) from error
        return await client_of_loop(self.base_url)
