"""OpenAI-compatible servers that others wrote, as counterparts of the adapter: aimock for scripted runs.

`aimock` needs node and what `make test` puts below .tools; a test is skipped only where node is missing. The
other server, llmock, brings its own fixture of that name. No server judges the requests it gets, so that is
done here: `wire_problem` says what is wrong with a history on the wire, by code that is not the runtime's.
"""

import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

AIMOCK = Path(__file__).parents[1] / ".tools/node_modules/@copilotkit/aimock/dist/cli.js"
STARTUP_SECONDS = 20.0

# JSON as a server gives it: its shape is what the tests look at.
Body = dict[str, Any]


def wire_problem(messages: list[Body]) -> str | None:
    """Say what no API may be sent, or None: an unanswered call, an orphan or a second result."""
    open_calls: list[str] = []
    for i, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in open_calls:
                return f"messages[{i}] is an orphan or second result of call {call_id!r}"
            open_calls.remove(call_id)
            continue
        if open_calls:
            return f"calls {open_calls} have no result before messages[{i}]"
        if role == "assistant":
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
            if len(set(open_calls)) < len(open_calls) or not all(open_calls):
                return f"messages[{i}] has calls with equal or empty ids: {open_calls}"
        elif role not in ("system", "developer", "user"):
            return f"messages[{i}] has the role {role!r}"
    return f"calls {open_calls} have no result" if open_calls else None


@frozen
class Aimock:
    """A running aimock: what it is to answer, and which requests it got."""

    host: str
    port: int

    @property
    def base_url(self) -> str:
        """What a client needs as its base URL."""
        return f"http://{self.host}:{self.port}/v1"

    def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Any:  # JSON of any shape
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"aimock refused {method} {path}: {response.status} {text}")
        return json.loads(text)

    def reset(self) -> None:
        """Forget answers, faults and requests."""
        self._ask("POST", "/__aimock/reset")
        self._ask("DELETE", "/__aimock/chaos")

    def script(self, *fixtures: Body) -> None:
        """Add answers: each is {"match": {...}, "response": {...}}, and the first that matches is given."""
        self._ask("POST", "/__aimock/fixtures", {"fixtures": list(fixtures)})

    def always(self, **response: object) -> None:
        """Give this one answer to every request."""
        self.script({"match": {}, "response": response})

    def faults(self, **rates: float) -> None:
        """Fail with these probabilities: rateLimitRate, malformedRate, disconnectRate, dropRate."""
        self._ask("POST", "/__aimock/chaos", rates)

    def requests(self) -> list[Body]:
        """Return the bodies of the chat completions requests, oldest first."""
        entries = self._ask("GET", "/__aimock/journal?path=/v1/chat/completions")
        bodies: list[Body] = [entry["body"] for entry in entries]
        for body in bodies:
            body.pop("_endpointType", None)  # a note of its own, no part of the request
        return bodies

    def assert_balanced(self) -> list[Body]:
        """Fail unless each request's history is one that an API accepts; return the requests."""
        bodies = self.requests()
        assert bodies, "aimock got no request"
        problems = {
            i: problem for i, body in enumerate(bodies) if (problem := wire_problem(body["messages"]))
        }
        assert problems == {}
        return bodies


@pytest.fixture(scope="session")
def aimock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    """Run one aimock on a free loopback port, for all tests; it ends with them."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing, and aimock runs on it")
    if not AIMOCK.is_file():
        pytest.fail(f"{AIMOCK} is missing: `make aimock` installs it")
    folder = tmp_path_factory.mktemp("aimock")
    # Strict mode will not start without an answer; `reset` takes this one away.
    first = {"fixtures": [{"match": {"userMessage": "never said"}, "response": {"content": "never given"}}]}
    (folder / "fixtures.json").write_text(json.dumps(first))
    command = [node, str(AIMOCK), "-p", "0", "--strict", "-f", str(folder / "fixtures.json")]
    environment = {**os.environ, "AIMOCK_STRICT_TURN_INDEX": "1"}
    with (
        (folder / "log.txt").open("w+") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        try:
            yield _listening(process, folder / "log.txt")
        finally:
            process.terminate()


def _listening(process: subprocess.Popen[bytes], log: Path) -> Aimock:
    """Wait for the line of the log that says where aimock listens."""
    deadline = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            _, found, address = line.partition("listening on http://")
            if found:
                host, _, port = address.strip().partition(":")
                return Aimock(host, int(port))
        time.sleep(0.02)
    raise RuntimeError(f"aimock did not start: {log.read_text()}")


@pytest.fixture
def aimock(aimock_server: Aimock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aimock]:
    """Give a clean aimock, to which the environment points every new OpenAI client."""
    aimock_server.reset()
    monkeypatch.setenv("OPENAI_BASE_URL", aimock_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "no key is needed")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    yield aimock_server
    aimock_server.reset()
