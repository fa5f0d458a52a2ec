"""What the runs against servers share: tools, scripts, and the judgment of what went over the wire."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from pydantic import TypeAdapter

from capfold.capabilities import RequireApproval, tool
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, Approve, OpenAIModel, RunResult
from tests.servers import Aimock, Body

ROOT = Path(__file__).parents[2]
MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
TOOLS = TypeAdapter(list[ChatCompletionToolUnionParam])


@tool(read_only=True)
def weather(city: str) -> str:
    """Look at the sky of a city."""
    return f"rain in {city}"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def agent(*capabilities: AnyCapability, **options: Any) -> Agent[Any]:  # Any: whatever else Agent takes
    """Return an agent with two tools, whose model is the server that the environment names."""
    return Agent(
        "desk",
        options.pop("model", None) or OpenAIModel("gpt-test"),
        tools=options.pop("tools", (weather, pay)),
        capabilities=capabilities,
        **options,
    )


def asks(*calls: tuple[str, str, Mapping[str, object] | str], **response: object) -> Body:
    """Return a response with tool calls: each an id, a tool and its arguments, a text being kept as it is."""
    listed = [
        {"id": i, "name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}
        for i, name, given in calls
    ]
    return {"toolCalls": listed, **response}


def says(content: str, **response: object) -> Body:
    """Return a response with text."""
    return {"content": content, **response}


def play(aimock: Aimock, *responses: Body) -> None:
    """Let aimock give these responses, one after another; a request too many is refused with 503."""
    aimock.script(
        *(
            {"match": {"endpoint": "chat", "sequenceIndex": i}, "response": response}
            for i, response in enumerate(responses)
        )
    )


def exhaust(value: object) -> None:
    """Iterate over all of a validated value: pydantic validates the members of an `Iterable` field only then."""
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for member in value:
            exhaust(member)


def check_types(body: Body) -> None:
    """Raise ValidationError unless messages and tools of a request are as the openai package declares them."""
    exhaust(MESSAGES.validate_python(body["messages"]))
    if "tools" in body:
        exhaust(TOOLS.validate_python(body["tools"]))


def judged(aimock: Aimock, requests: int) -> list[Body]:
    """Return the requests that aimock got: balanced, of the declared types, and as many as the ledger says."""
    bodies = aimock.assert_balanced()
    for body in bodies:
        check_types(body)
    assert requests == len(bodies)
    return bodies


def roles(body: Body) -> list[str]:
    """Return the roles of a request's messages."""
    return [message["role"] for message in body["messages"]]


def tool_results(body: Body) -> dict[str, str]:
    """Return the results in a request, by call id."""
    return {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}


def careful() -> Agent[Any]:  # Any: as above
    """Return the agent that two processes build alike: it asks before it pays."""
    return agent(RequireApproval({"pay"}))


def resumed_elsewhere(suspended: RunResult[Any]) -> Body:  # Any: of every output type
    """Resume a run from the text of its snapshot in another process, approving all; return what it told."""
    start = "import anyio; from tests.runtime.server_runs import resume; anyio.run(resume)"
    given = {"text": suspended.snapshot(), "pending": [request.digest for request in suspended.pending]}
    done = subprocess.run(
        [sys.executable, "-c", start],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    told: Body = json.loads(done.stdout)
    return told


async def resume() -> None:
    """Do what `resumed_elsewhere` asks of the other process."""
    given = json.load(sys.stdin)
    result = await careful().resume(given["text"], {digest: Approve() for digest in given["pending"]})
    json.dump({"status": result.status, "output": result.output, "requests": result.requests}, sys.stdout)
