"""The verdict of a server that others wrote to judge clients: Retry around OpenAIModel handles its faults.

llmock notes every request and finds what a client did wrong: a Retry-After that was ignored, a truncated answer
that was taken for a whole one, attempts without a pause, a failure without another attempt.
"""

from collections.abc import Callable

import pytest
from llmock.pytest_plugin import LLMock

from capfold.capabilities.backoff import Backoff
from capfold.capabilities.messages import AssistantMessage, UserMessage
from capfold.runtime.agent import Agent
from capfold.runtime.errors import LimitError, ModelRunError
from capfold.runtime.events import Delta
from capfold.runtime.fallback_model import Fallback
from capfold.runtime.limits import Limits
from capfold.runtime.models import ModelError, ModelRequest
from capfold.runtime.openai_model import OpenAIModel
from capfold.runtime.port import LocalPort
from capfold.runtime.retry_model import Retry
from tests.runtime.desk import partial
from tests.runtime.meters import CountingMeter

ASK = ModelRequest(messages=(UserMessage("go"),))
TEXT = "one two three four five"
# Short waits, but such as the server tells from none.
BACKOFF = Backoff(initial=0.1, factor=2.5)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach loopback servers directly, whatever proxy the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


class PortMeter(CountingMeter):
    """Waits for as long as it is asked to."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await LocalPort().sleep(seconds)


def model(timeout: float = 5.0) -> Retry:
    """Return the model under judgment."""
    return Retry(OpenAIModel("gpt-test", timeout=timeout), backoff=BACKOFF)


async def streamed(asked: Retry, meter: PortMeter) -> str:
    """Return the text of a streamed answer."""
    async with asked.stream(ASK, meter) as parts:
        *deltas, message = [part async for part in parts]
    assert isinstance(message, AssistantMessage)
    assert message.text == "".join(delta.text for delta in deltas if isinstance(delta, Delta))
    return message.text


# A fault before anything was said -> how to make it, and how many requests it takes to get over it.
FAULTS: dict[str, tuple[Callable[[LLMock], object], int]] = {
    "rate limit": (lambda server: server.rate_limit(times=2, retry_after=0.3), 3),
    "outage": (lambda server: server.fail(503, times=2), 3),
    "server error": (lambda server: server.fail(500), 2),
    "conflict": (lambda server: server.fail(409), 2),
    "slow": (lambda server: server.delay(1.2), 2),
}
# Likewise, in a stream: the first chunk has the role only.
STREAM_FAULTS: dict[str, tuple[Callable[[LLMock], object], int]] = {
    **FAULTS,
    "disconnect": (lambda server: server.disconnect(after_chunks=1), 2),
    "truncate": (lambda server: server.truncate(after_chunks=1, times=2), 3),
    # Paced, so that there is more to come when the client stops reading.
    "corrupt": (lambda server: server.pace(20).corrupt(after_chunks=1), 2),
    "stall": (lambda server: server.stall(after_chunks=1, seconds=1.2), 2),
    "slow first token": (lambda server: server.slow_first_token(1.2), 2),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_run_gets_over_a_fault(llmock: LLMock, fault: str) -> None:
    """The run completes, the ledger has each attempt, and the server finds nothing wrong, nor to warn of."""
    make, requests = FAULTS[fault]
    make(llmock)
    llmock.reply(TEXT, times=None)
    result = await Agent("desk", model(0.6 if fault == "slow" else 5.0)).run("go")
    assert ("completed", TEXT, requests) == (result.status, result.output, result.requests)
    assert requests == len(llmock.requests)
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("fault", STREAM_FAULTS)
async def test_a_stream_gets_over_a_fault(llmock: LLMock, fault: str) -> None:
    """So does a stream that had published nothing yet: the answer is whole, and its text is told once."""
    make, requests = STREAM_FAULTS[fault]
    make(llmock)
    llmock.reply(TEXT, times=None)
    meter = PortMeter()
    slow = fault in ("slow", "stall", "slow first token")
    assert TEXT == await streamed(model(0.6 if slow else 5.0), meter)
    assert requests == meter.charged == len(llmock.requests)
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "corrupt", "stall"])
async def test_a_stream_that_was_told_in_part(llmock: LLMock, fault: str) -> None:
    """What was told is not asked for again in secret: the caller gets the error and the text so far, and decides."""
    options = {"seconds": 1.2} if fault == "stall" else {}
    llmock.pace(20)  # so that there is more to come when the client stops reading
    getattr(llmock, fault)(after_chunks=3, **options)
    llmock.reply(TEXT, times=None)
    meter = PortMeter()
    with pytest.raises(ModelError) as caught:
        await streamed(model(0.6), meter)
    assert ("one two ", True) == (caught.value.partial, caught.value.retryable)
    assert 1 == meter.charged == len(llmock.requests)
    await meter.sleep(0.1)
    assert TEXT == await streamed(model(0.6), meter)
    llmock.assert_resilient(strict=True)


async def test_a_malformed_request_is_sent_once(llmock: LLMock) -> None:
    """A 400 is the caller's to mend; no other attempt is made, nor another model asked."""
    llmock.context_overflow(times=None)
    with pytest.raises(ModelRunError) as caught:
        await Agent("desk", Fallback([model(), model()])).run("go")
    assert 1 == partial(caught.value).requests == len(llmock.requests)
    llmock.assert_resilient(strict=True)


async def test_an_outage_ends_with_the_attempts(llmock: LLMock) -> None:
    """After the last attempt the run fails, and the server finds the pauses between them growing."""
    llmock.outage()
    with pytest.raises(ModelRunError) as caught:
        await Agent("desk", model()).run("go")
    assert 3 == partial(caught.value).requests == len(llmock.requests)
    assert 2 == len(getattr(caught.value.__cause__, "__notes__", ()))
    llmock.assert_resilient(strict=True)


async def test_a_limit_is_what_the_server_sees(llmock: LLMock) -> None:
    """With two requests allowed the third attempt is not sent, though the failure may pass."""
    llmock.outage()
    with pytest.raises(LimitError) as caught:
        await Agent("desk", model(), limits=Limits(requests=2)).run("go")
    assert 2 == partial(caught.value).requests == len(llmock.requests)
    llmock.assert_resilient(strict=True)


async def test_a_real_quota(llmock: LLMock) -> None:
    """A request over the quota is told how long to wait; more than the longest wait is not waited for."""
    llmock.limits(rpm=1)
    llmock.reply(TEXT, times=None)
    agent = Agent("desk", Retry(OpenAIModel("gpt-test"), attempts=2, backoff=Backoff(maximum=0.01)))
    assert TEXT == (await agent.run("go")).output
    with pytest.raises(ModelRunError) as caught:
        await agent.run("go")
    assert isinstance(caught.value.__cause__, ModelError)
    assert caught.value.__cause__.retry_after
    assert 2 == partial(caught.value).requests


async def test_another_server_is_asked(llmock: LLMock) -> None:
    """A fallback to another address answers, when the first does not even listen."""
    llmock.reply(TEXT)
    nobody = OpenAIModel("m", base_url="http://127.0.0.1:9/v1")
    result = await Agent("desk", Fallback([nobody, OpenAIModel("gpt-test")])).run("go")
    assert (TEXT, 2) == (result.output, result.requests)
    llmock.assert_resilient(strict=True)
