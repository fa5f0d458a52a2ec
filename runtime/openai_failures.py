"""What went wrong with a request, as a ModelError: by status, by exception of the openai package, by error object.

Imports no openai: an exception is known by the names of its classes. Decides on no other attempt.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeAlias, cast

from .models import ModelError, ModelErrorKind

Meaning: TypeAlias = tuple[ModelErrorKind, bool]

# Status -> what it means and whether the same request may succeed later; 5xx and other 4xx are below.
STATUSES: dict[int, Meaning] = {
    401: ("auth", False),
    403: ("auth", False),
    408: ("timeout", True),
    409: ("server", True),  # the client's own rule: a lock that was not to be had in time
    429: ("rate_limit", True),
}
_SERVER = 500
_SERVER_FAILED: Meaning = ("server", True)
_REFUSED: Meaning = ("bad_request", False)

# Code or type of an error object -> likewise. It says more than a status, which a stream has not.
CODES: dict[str, Meaning] = {
    "rate_limit_exceeded": ("rate_limit", True),
    "rate_limit_error": ("rate_limit", True),
    "insufficient_quota": ("rate_limit", False),  # the account is empty: waiting does not fill it
    "server_error": _SERVER_FAILED,
    "invalid_request_error": _REFUSED,
    "context_length_exceeded": _REFUSED,
    "invalid_prompt": _REFUSED,
    "authentication_error": ("auth", False),
    "invalid_api_key": ("auth", False),
}

# Class of the openai package, or of the HTTP client under it -> likewise; the nearest base counts. An APIStatusError
# goes by its status, an APIError without one is an error object in a stream; what is left of OpenAIError is a
# credential that could not be had.
CLASSES: dict[str, Meaning] = {
    "APITimeoutError": ("timeout", True),
    "APIConnectionError": ("connection", True),
    "APIResponseValidationError": ("invalid_response", True),
    "LengthFinishReasonError": ("invalid_response", False),
    "ContentFilterFinishReasonError": ("invalid_response", False),
    "WebSocketConnectionClosedError": ("connection", True),
    "WebSocketQueueFullError": ("connection", True),
    "OpenAIError": ("auth", False),
    "TimeoutException": ("timeout", True),
    "RequestError": ("connection", True),
}
_SHOWN_CHARACTERS = 500


class _Response(Protocol):
    @property
    def headers(self) -> Mapping[str, str]: ...


class _StatusError(Protocol):
    """An APIStatusError, as far as it matters here."""

    message: str
    body: object
    status_code: int
    response: _Response


class _ObjectError(Protocol):
    """An APIError, as far as it matters here."""

    message: str
    body: object


def failure(error: Exception) -> ModelError | None:
    """Return what an exception of the openai package, or of the HTTP client under it, means; None for others."""
    for cls in type(error).__mro__:
        if cls.__name__ == "APIStatusError":
            return _status_failure(cast(_StatusError, error))
        if cls.__name__ == "APIError":
            told = cast(_ObjectError, error)
            return object_failure(told.body, told.message)
        if cls.__name__ in CLASSES:
            kind, retryable = CLASSES[cls.__name__]
            causes = dict.fromkeys(str(one) for one in (error, error.__cause__) if one is not None)
            return ModelError(kind, " ".join(causes)[:_SHOWN_CHARACTERS], retryable=retryable)
    return None


@contextmanager
def failures(timeout: float | None) -> Iterator[None]:
    """Raise what the openai package raises as the ModelError that it means; `timeout` is told where it was it."""
    try:
        yield
    except Exception as error:
        known = failure(error)
        if known is None:
            raise
        if known.kind == "timeout" and known.status is None:
            raise timed_out(timeout) from error
        raise known from error


def timed_out(timeout: float | None) -> ModelError:
    """Return the error of a request that took longer than `timeout` seconds."""
    return ModelError("timeout", f"no response within {timeout} s", retryable=True)


def object_failure(body: object, message: str = "") -> ModelError:
    """Return what an error object means that came where a response should: its number, code or type says.

    One that says nothing known is the server's failure, worth another try. `message` stands for one it has not.
    """
    said = body if isinstance(body, Mapping) else {}
    kind, retryable = _told(said) or _SERVER_FAILED
    told = said.get("message")
    shown = told if isinstance(told, str) and told else message or f"the server sent an error: {body!r}"
    return ModelError(kind, shown[:_SHOWN_CHARACTERS], retryable=retryable)


def _of_status(status: int) -> Meaning:
    return STATUSES.get(status, _SERVER_FAILED if status >= _SERVER else _REFUSED)


def _told(body: Mapping[object, object]) -> Meaning | None:
    """Return what an error object says by itself: a known code or type, or a status as its code."""
    for name in ("code", "type"):
        value = body.get(name)
        if isinstance(value, str) and value in CODES:
            return CODES[value]
        if isinstance(value, str | int) and str(value).isdecimal() and 400 <= int(value) < 600:  # noqa: PLR2004  # the statuses of failures
            return _of_status(int(value))
    return None


def _status_failure(error: _StatusError) -> ModelError:
    """Return what a response with an error status means."""
    kind, retryable = _of_status(error.status_code)
    if isinstance(error.body, Mapping) and error.body.get("code") == "insufficient_quota":
        kind, retryable = CODES["insufficient_quota"]
    return ModelError(
        kind,
        error.message[:_SHOWN_CHARACTERS],
        retryable=retryable,
        status=error.status_code,
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
