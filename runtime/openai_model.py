"""OpenAIModel: chat completions by the openai client, for OpenAI and any compatible server.

Only sends bytes and maps failures; what the bytes say is the business of `openai_wire` and `openai_response`.
Knows nothing of runs: each attempt is the meter's and whoever calls decides on another one.
"""

import inspect
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from anyio import move_on_after
from attrs import field, frozen

from ..capabilities.frozen import EMPTY, FrozenDict, Json, freeze_mapping
from ..capabilities.messages import AssistantMessage
from .models import Meter, ModelError, ModelErrorKind, ModelProfile, ModelRequest, refuse_if_forbidden
from .openai_client import check_key, client_of_loop
from .openai_parts import Unsendable
from .openai_response import decode_response
from .openai_wire import check_settings, encode_request

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

# What OpenAI's models can do. A compatible server that cannot gets a profile that says so.
OPENAI_PROFILE = ModelProfile(tools=True, json_schema=True, images=True, audio=True, files=True)

# Status -> what it means and whether the same request may succeed later; 5xx and other 4xx are below.
_STATUSES: dict[int, tuple[ModelErrorKind, bool]] = {
    401: ("auth", False),
    403: ("auth", False),
    408: ("timeout", True),
    409: ("server", True),  # the client's own rule: a lock that was not to be had in time
    429: ("rate_limit", True),
}
_SERVER = 500
_SHOWN_CHARACTERS = 500


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
    """A model behind the chat completions API.

    `client`: an AsyncOpenAI of yours, never closed here and used without its retries; one made for Azure
    needs its `azure_deployment`. Without it, a client is made at the first request from OPENAI_API_KEY and
    `base_url` or OPENAI_BASE_URL, one for each event loop, and closed as the loop ends. `timeout`: seconds
    for one whole request, None = no bound. `settings`: fields of the request body, as `temperature`; those of
    a run win, and None unsets one; `tool_choice` and `parallel_tool_calls` are left out of a request without
    tools. `profile`: what the model can do, by default what OpenAI's can.

    Raises ValueError for a missing key, another `api` than "chat", a bad URL, timeout or setting.
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
        if self.api != "chat":
            raise ValueError(f"api must be 'chat', the only one there is now, not {self.api!r}")
        if self.timeout is not None and (type(self.timeout) not in (int, float) or not self.timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds or None, not {self.timeout!r}")
        check_settings(self.settings)
        if self.base_url is not None and not self.base_url.lower().startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, not be {self.base_url!r}")
        if self.client is None:
            check_key(self.base_url)
        elif self.base_url is not None:
            raise ValueError("base_url is the client's own when client= is given")

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Send one request, charged just before it leaves; never tries again by itself.

        Raises ModelError for each way it can fail; "bad_request" without a charge for what the API or this
        model cannot carry, such as an image in a tool's result.
        """
        refuse_if_forbidden(self.name)
        try:
            encoded = encode_request(request, self.name, self.profile, self.settings)
        except Unsendable as error:
            raise ModelError("bad_request", str(error), retryable=False) from error
        client = await self._connect()
        meter.charge()
        return decode_response(await self._send(client, encoded.body), encoded.output)

    async def _connect(self) -> "AsyncOpenAI":
        if self.client is not None:
            return self.client
        try:
            check_key(self.base_url)  # the environment may have changed since
        except ValueError as error:
            raise ModelError("auth", str(error), retryable=False) from error
        return await client_of_loop(self.base_url)

    async def _send(self, client: "AsyncOpenAI", body: bytes) -> bytes:
        """Post the body as it is: the client's typed `create` would walk the history, at 100 us a message."""
        from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAIError

        # The client's timeout bounds the wait for the next byte only; the scope a server that trickles.
        with move_on_after(self.timeout):
            try:
                return await client.post(
                    "/chat/completions", content=body, cast_to=bytes, options={"timeout": self.timeout}
                )
            except APITimeoutError:
                pass
            except APIConnectionError as error:
                raise ModelError(
                    "connection", f"{error.message} {error.__cause__}", retryable=True
                ) from error
            except APIStatusError as error:
                raise status_error(error) from error
            except OpenAIError as error:  # what is left: a credential that could not be had
                raise ModelError("auth", str(error)[:_SHOWN_CHARACTERS], retryable=False) from error
        raise ModelError("timeout", f"no response within {self.timeout} s", retryable=True)


def status_error(error: "APIStatusError") -> ModelError:
    """Return what a response with an error status means."""
    status = error.status_code
    kind, retryable = _STATUSES.get(status, ("server", True) if status >= _SERVER else ("bad_request", False))
    return ModelError(
        kind,
        error.message[:_SHOWN_CHARACTERS],
        retryable=retryable,
        status=status,
        retry_after=retry_after(error.response.headers, time.time()) if retryable else None,
    )


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds to wait that a response asks for, in any of three forms; None when it asks for none.

    `now` in UTC seconds, for the form that is a date. A time that has passed is 0.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is not None or said is None:
        return seconds
    from email.utils import parsedate_to_datetime  # 8 ms that only the rarest of the three forms needs

    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
