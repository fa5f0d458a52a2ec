"""What each failure of a request means: by status, by exception class, by error object, by what it asks to wait."""

import httpx2
import openai
import pytest
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    OpenAIError,
    _exceptions,  # one of them has no public place
)
from openai.types.chat import ChatCompletion

from capfold.runtime.models import ModelError, ModelErrorKind
from capfold.runtime.openai_failures import CLASSES, CODES, STATUSES, failure, failures, object_failure

REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/chat/completions")
Meaning = tuple[ModelErrorKind, bool]


def response(status: int, **headers: str) -> httpx2.Response:
    """Return a response with nothing but a status and headers; `_` stands for a dash."""
    return httpx2.Response(
        status, headers={name.replace("_", "-"): value for name, value in headers.items()}, request=REQUEST
    )


COMPLETION = ChatCompletion.construct(usage=None)
# One of each exception class of the package, and what it means.
RAISED: list[tuple[Exception, Meaning]] = [
    (OpenAIError("no credentials"), ("auth", False)),
    (_exceptions.SubjectTokenProviderError("no token"), ("auth", False)),
    (APIError("odd", REQUEST, body=None), ("server", True)),
    (APIError("odd", REQUEST, body={"code": "rate_limit_exceeded"}), ("rate_limit", True)),
    (openai.APIResponseValidationError(response(200), None), ("invalid_response", True)),
    (APIConnectionError(request=REQUEST), ("connection", True)),
    (APITimeoutError(REQUEST), ("timeout", True)),
    (APIStatusError("odd", response=response(418), body=None), ("bad_request", False)),
    (openai.BadRequestError("no", response=response(400), body=None), ("bad_request", False)),
    (openai.AuthenticationError("no", response=response(401), body=None), ("auth", False)),
    (openai.OAuthError(response=response(401), body=None), ("auth", False)),
    (openai.PermissionDeniedError("no", response=response(403), body=None), ("auth", False)),
    (openai.NotFoundError("no", response=response(404), body=None), ("bad_request", False)),
    (openai.ConflictError("no", response=response(409), body=None), ("server", True)),
    (openai.UnprocessableEntityError("no", response=response(422), body=None), ("bad_request", False)),
    (openai.RateLimitError("no", response=response(429), body=None), ("rate_limit", True)),
    (openai.InternalServerError("no", response=response(503), body=None), ("server", True)),
    (openai.LengthFinishReasonError(completion=COMPLETION), ("invalid_response", False)),
    (openai.ContentFilterFinishReasonError(), ("invalid_response", False)),
    (openai.WebSocketConnectionClosedError("gone", unsent_messages=[]), ("connection", True)),
    (openai.WebSocketQueueFullError("full"), ("connection", True)),
]
# Of the HTTP client, while a stream is read.
BELOW: list[tuple[Exception, Meaning]] = [
    (httpx2.ReadTimeout("slow", request=REQUEST), ("timeout", True)),
    (httpx2.ReadError("gone", request=REQUEST), ("connection", True)),
    (httpx2.RemoteProtocolError("garbled", request=REQUEST), ("connection", True)),
    (httpx2.DecodingError("no gzip", request=REQUEST), ("connection", True)),
]


@pytest.mark.parametrize(("raised", "meaning"), [*RAISED, *BELOW], ids=lambda value: type(value).__name__)
def test_exceptions(raised: Exception, meaning: Meaning) -> None:
    """Each exception means one thing, and its words are told."""
    found = failure(raised)
    assert found is not None
    assert meaning == (found.kind, found.retryable)
    assert getattr(raised, "status_code", None) in (found.status, 200)
    assert found.message


def test_no_class_is_left_out() -> None:
    """The table above has one of each class that the openai package has, so a new one asks for its row."""
    named = vars(_exceptions).values()
    known = {one for one in named if isinstance(one, type) and issubclass(one, OpenAIError)}
    assert known == {type(raised) for raised, _ in RAISED}


def test_other_exceptions_mean_nothing() -> None:
    """A bug is not mistaken for a failure of the provider; it passes."""
    assert failure(ValueError("a bug")) is None
    with pytest.raises(ValueError, match="a bug"), failures(1.0):
        raise ValueError("a bug")


def test_the_cause_is_told_once() -> None:
    """A lost connection says what the socket said, and says nothing twice."""
    error = APIConnectionError(request=REQUEST)
    error.__cause__ = OSError("reset by peer")
    same = httpx2.ReadError("reset")
    same.__cause__ = OSError("reset")
    told = [found.message for one in (error, same) if (found := failure(one))]
    assert ["Connection error. reset by peer", "reset"] == told


def test_a_timeout_tells_how_long() -> None:
    """The bound that was met stands in the message."""
    with pytest.raises(ModelError, match=r"within 1\.5 s") as caught, failures(1.5):
        raise APITimeoutError(REQUEST)
    assert ("timeout", True) == (caught.value.kind, caught.value.retryable)


@pytest.mark.parametrize("status", range(400, 600))
def test_statuses(status: int) -> None:
    """Those of the table as it says; other 4xx find fault with the request, 5xx with the server."""
    expected = STATUSES.get(status, ("server", True) if status >= 500 else ("bad_request", False))
    found = failure(APIStatusError("no", response=response(status, retry_after="3"), body=None))
    assert found is not None
    assert (*expected, status) == (found.kind, found.retryable, found.status)
    assert (3.0 if found.retryable else None) == found.retry_after


def test_the_table_of_statuses() -> None:
    """The statuses with a meaning of their own, written out."""
    assert {
        401: ("auth", False),
        403: ("auth", False),
        408: ("timeout", True),
        409: ("server", True),
        429: ("rate_limit", True),
    } == STATUSES


def test_an_empty_account() -> None:
    """A 429 that says that the quota is used up is no matter of waiting."""
    body = {"code": "insufficient_quota", "message": "pay"}
    found = failure(openai.RateLimitError("pay", response=response(429, retry_after="3"), body=body))
    assert found is not None
    assert ("rate_limit", False, None) == (found.kind, found.retryable, found.retry_after)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        *(({"code": code, "message": "no"}, meaning) for code, meaning in CODES.items()),
        ({"type": "invalid_request_error", "code": None, "message": "no"}, ("bad_request", False)),
        ({"type": "invalid_request_error", "code": "rate_limit_exceeded"}, ("rate_limit", True)),
        ({"code": 401}, ("auth", False)),
        ({"code": 503}, ("server", True)),
        ({"code": 200}, ("server", True)),
        ({"code": True}, ("server", True)),
        ({"code": []}, ("server", True)),
        ("overloaded", ("server", True)),
        (None, ("server", True)),
    ],
)
def test_error_objects(body: object, expected: Meaning) -> None:
    """Code, then type: a known word or the number of a status. What says nothing known is the server's failure."""
    found = object_failure(body)
    assert (*expected, None) == (found.kind, found.retryable, found.status)
    assert found.message


def test_messages_are_bounded() -> None:
    """A provider that sends a page of HTML does not fill the log with it."""
    found = failure(openai.InternalServerError("x" * 9999, response=response(500), body=None))
    assert found is not None
    assert 500 == len(found.message) == len(object_failure({"message": "x" * 9999}).message)
    assert set(CLASSES) > {"OpenAIError"}
