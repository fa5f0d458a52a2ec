"""C45 around a suspended run: what wrap_run does there takes effect, or ends the run by name."""

from typing import Any

import pytest

from capfold.capabilities import Capability, RequireApproval
from capfold.runtime import (
    Agent,
    Approve,
    Blocked,
    HookFailed,
    IllegalTransition,
    RunError,
    RunResult,
    ScriptedModel,
    StorageError,
)
from tests.corruption.scenes import Works, at, batch, check_closed, failed, kinds, statuses
from tests.corruption.test_audit import FailingSink

REFUSED = {"c0": "not_executed", "c1": "not_executed", "c2": "not_executed"}


def agent_of(works: Works, *capabilities: Capability, **options: Any) -> Agent[str]:
    """Return an agent whose batch of three waits for a person."""
    return Agent(
        "desk",
        ScriptedModel([batch(0, 1, 2), "done"]),
        tools=[works.tool()],
        capabilities=[*capabilities, RequireApproval()],
        **options,
    )


def approvals(result: RunResult[Any]) -> dict[str, Any]:
    """Approve everything."""
    return {request.digest: Approve() for request in result.pending}


@pytest.mark.parametrize("where", ["suspended", "resumed"])
@pytest.mark.parametrize("kept", ["result", "snapshot"])
async def test_c45_stop_in_wrap_run_around_a_suspension(where: str, kept: str) -> None:
    """Latched on the way out or on the way in again, approvals notwithstanding: nothing of the batch runs."""
    works = Works()
    point = "wrap_run:out" if where == "suspended" else "wrap_run:in"
    status = "suspended" if where == "suspended" else "running"

    def stop(run: Any) -> Any:
        return run.stop("enough") if run.status == status and run.run_step == 1 else run

    agent = agent_of(works, at(point, stop))
    result = await agent.run("go")
    assert "suspended" == result.status
    assert result.log.complete
    done = await agent.resume(result if kept == "result" else result.snapshot(), approvals(result))
    assert ("stopped", "enough", []) == (done.status, done.output, works.began)
    assert done.stop is not None
    assert ("Actor", "wrap_run") == (done.stop.key, done.stop.hook)
    check_closed(done.messages)
    assert REFUSED == statuses(done.messages)


@pytest.mark.parametrize("where", ["suspended", "resumed"])
async def test_c45_fail_in_wrap_run_around_a_suspension(where: str) -> None:
    """Likewise a failure: blocked by name."""
    works = Works()
    point = "wrap_run:out" if where == "suspended" else "wrap_run:in"

    def fail(run: Any) -> Any:
        return run.fail("no") if run.run_step == 1 and run.failed is None else run

    agent = agent_of(works, at(point, fail))
    result = await agent.run("go")
    with pytest.raises(RunError) as caught:
        await agent.resume(result, approvals(result))
    assert isinstance(caught.value.reason, Blocked)
    assert ("Actor", "wrap_run") == (caught.value.reason.key, caught.value.reason.hook)
    assert caught.value.partial is not None
    assert ([], REFUSED) == (works.began, statuses(caught.value.partial.messages))


def raising(run: Any) -> Any:
    """Raise as a hook with a bug does."""
    raise RuntimeError("bug")


def rewriting(run: Any) -> Any:
    """Write what no wrapper may write."""
    return run.append(run.messages[0])


@pytest.mark.parametrize(("action", "kind"), [(raising, HookFailed), (rewriting, IllegalTransition)])
async def test_c45_a_wrap_run_that_breaks_around_a_suspension(action: Any, kind: type) -> None:
    """The run fails by its name instead of being suspended; its calls are closed."""
    works = Works()
    error = await failed(agent_of(works, at("wrap_run:out", action)))
    assert kind is type(error.reason)
    assert ("Actor", "wrap_run") == (error.reason.key, error.reason.hook)
    assert error.partial is not None
    assert ("failed", REFUSED) == (error.partial.status, statuses(error.partial.messages))
    check_closed(error.partial.messages)
    assert "run_ended" == kinds(error.partial.log)[-1]
    assert [] == works.began


@pytest.mark.parametrize("wrapped", ["", "in wrap_run"])
async def test_c45_a_suspension_that_cannot_be_written_down(wrapped: str) -> None:
    """A sink that fails there ends the run: it is not suspended, and its calls are closed."""
    probe = FailingSink(99)
    listed = [at("wrap_run:in", lambda run: run)] if wrapped else []
    await agent_of(Works(), *listed, sinks=[probe]).run("go")
    works = Works()
    error = await failed(agent_of(works, *listed, sinks=[FailingSink(99 - probe.left - 1)]))
    assert isinstance(error, StorageError)
    assert error.partial is not None
    assert ("failed", REFUSED, []) == (
        error.partial.status,
        statuses(error.partial.messages),
        works.began,
    )
    assert error.partial.log.complete
