"""`capfold runs` and `capfold resume`: a call that one process suspended, decided at another one's command line."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from capfold.runtime import Agent, ScriptedModel
from capfold.runtime.commands import capfold
from capfold.runtime.sqlite_store import SQLiteStore

SHOP = '''
from capfold.capabilities import RequireApproval, ToolMessage, call, is_destructive, tool
from capfold.runtime import Agent, FunctionModel
from capfold.runtime.sqlite_store import SQLiteStore


@tool(destructive=True)
def pay(amount: int, to: str) -> str:
    """Pay."""
    with open("paid.txt", "a") as file:
        file.write(f"{amount} {to}\\n")
    return f"paid {amount}"


def reply(request):
    results = [m.content for m in request.messages if isinstance(m, ToolMessage)]
    if results:
        return f"Done: {', '.join(results)}."
    return [call("pay", {"amount": 10, "to": "ada"}, id="a"), call("pay", {"amount": 20, "to": "b\\x1b[2J"}, id="b")]


def build(**more):
    return Agent(
        "desk", FunctionModel(reply), tools=[pay], capabilities=[RequireApproval(is_destructive)],
        store=SQLiteStore("shop.db"), **more,
    )


agent = build()
without_store = Agent("desk", FunctionModel(reply))
nothing = 5
entered = []


class Connection:
    """A connection, within which the agent has its tools; leaving it raises a group, as a task group would."""

    def __init__(self, made):
        self.made = made

    async def __aenter__(self):
        if isinstance(self.made, Exception):
            raise self.made
        entered.append(True)
        return self.made

    async def __aexit__(self, kind, error, traceback):
        entered.pop()
        if error is not None:
            raise ExceptionGroup("group", [error])


def connected():
    return Connection(agent)


def lost():
    return Connection(ConnectionError("the server cannot be reached"))


def empty():
    return Connection(5)


def storeless():
    return Connection(without_store)


def no_context():
    return agent


if __name__ == "__main__":
    print(agent.run_sync("Pay.", conversation="c", run_id="r-1").status)
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an agent, of which another process has suspended run `r-1`."""
    (tmp_path / "shop.py").write_text(SHOP)
    done = subprocess.run(
        [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "suspended\n" == done.stdout
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def process(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process of its own, without a terminal."""
    line = [sys.executable, "-m", "capfold.runtime", *arguments]
    return subprocess.run(
        line, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60
    )


def run(*arguments: str) -> Result:
    """Run a command in this process, without a terminal."""
    return CliRunner().invoke(capfold, arguments)


def digests(folder: Path) -> list[str]:
    """Return the beginnings of the digests that are shown, in order."""
    shown = run("resume", "shop:agent", "r-1").stdout.splitlines()
    return [line.split()[0] for line in shown if not line.startswith(" ")]


def paid(folder: Path) -> list[str]:
    """Return what was paid."""
    file = folder / "paid.txt"
    return sorted(file.read_text().splitlines()) if file.exists() else []


def test_another_process_decides(shop: Path) -> None:
    """It lists the run, shows what waits, approves it, and the conversation has the whole turn."""
    assert "r-1\n" == process("runs", "shop:agent", folder=shop).stdout
    shown = process("resume", "shop:agent", "r-1", folder=shop)
    assert (0, []) == (shown.returncode, paid(shop))
    assert 'desk calls pay with {"amount": 10, "to": "ada"}' in shown.stdout
    assert "RequireApproval: Allow pay with" in shown.stdout
    assert "the run still waits" in shown.stderr
    done = process("resume", "shop:agent", "r-1", "--approve-all", folder=shop)
    assert (0, "r-1 completed: Done: paid 10, paid 20.\n") == (done.returncode, done.stdout)
    assert ["10 ada", "20 b\x1b[2J"] == paid(shop)
    assert "" == process("runs", "shop:agent", folder=shop).stdout
    again = process("resume", "shop:agent", "r-1", "--approve-all", folder=shop)
    assert (1, "claimed already" in again.stderr, 2) == (again.returncode, True, len(paid(shop)))

    async def kept() -> int:
        async with SQLiteStore(shop / "shop.db") as store:
            return len(await store.load("c"))

    assert 5 == anyio.run(kept)


def test_what_a_terminal_would_obey_is_escaped(shop: Path) -> None:
    """A person sees what will run, whatever the model wrote into it."""
    output = run("resume", "shop:agent", "r-1").output
    assert "\x1b" not in output
    assert "\\u001b[2J" in output


def test_each_decision_by_the_beginning_of_its_digest(shop: Path) -> None:
    """One is edited, one is denied with a message."""
    first, second = digests(shop)
    edit = f'{first}={{"amount": 1, "to": "bob"}}'
    done = run("resume", "shop:agent", "r-1", "--edit", edit, "--deny", f"{second}=not today")
    assert (0, "r-1 completed: Done: paid 1, not today.\n") == (done.exit_code, done.output)
    assert ["1 bob"] == paid(shop)


def test_an_answer_and_the_rest_approved(shop: Path) -> None:
    """`--approve-all` is for what nothing else is said of."""
    first, _ = digests(shop)
    done = run("resume", "shop:agent", "r-1", "--answer", f"{first}=by hand", "--approve-all")
    assert "r-1 completed: Done: by hand, paid 20.\n" == done.output


def test_decisions_of_a_file(shop: Path) -> None:
    """As another program writes them, by whole digest."""
    store = SQLiteStore(shop / "shop.db")
    text = json.loads(anyio.run(store.held, "r-1"))
    pending = [one["digest"] for one in text["value"]["pending"]]
    (shop / "decisions.json").write_text(json.dumps({one: {"type": "Deny"} for one in pending}))
    done = run("resume", "shop:agent", "r-1", "--decisions", "decisions.json")
    assert (0, []) == (done.exit_code, paid(shop))
    anyio.run(store.close)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--approve", "zzz"], "begins the digest of no call"),
        (["--approve", ""], "begins the digest of no call"),
        (["--answer", "FIRST"], "takes DIGEST=TEXT"),
        (["--edit", "FIRST=[1]"], "a JSON object"),
        (["--edit", "FIRST={"], "a JSON object"),
        (["--approve", "FIRST", "--deny", "FIRST"], "decided before"),
        (["--approve", "FIRST"], "all pending ones at once"),
        (["--edit", 'FIRST={"amount": "x"}', "--approve-all"], "not valid"),
        (["--decisions", "shop.py"], "decisions are a JSON object"),
    ],
)
def test_a_decision_that_does_not_fit_is_a_wrong_call(shop: Path, arguments: list[str], said: str) -> None:
    """It says what is wrong, nothing is done, and the run still waits."""
    first, _ = digests(shop)
    done = run("resume", "shop:agent", "r-1", *[one.replace("FIRST", first) for one in arguments])
    assert (2, True, []) == (done.exit_code, said in done.stderr, paid(shop))
    assert "r-1\n" == run("runs", "shop:agent").output


@pytest.mark.parametrize(
    ("agent", "run_id", "said"),
    [
        ("shop", "r-1", "MODULE:ATTRIBUTE"),
        ("shop:", "r-1", "MODULE:ATTRIBUTE"),
        ("no_such_shop:agent", "r-1", "no_such_shop"),
        ("shop:missing", "r-1", "no 'missing'"),
        ("shop:nothing", "r-1", "is no Agent, but int"),
        (
            "shop:no_context",
            "r-1",
            "is no Agent, but function; a function would have to return an async context",
        ),
        ("shop:empty", "r-1", "gives no Agent, but int"),
        ("shop:storeless", "r-1", "has no store"),
        ("shop:without_store", "r-1", "has no store"),
        ("shop:agent", "r-2", "'r-2' is not in this store"),
    ],
)
def test_what_is_not_there_is_a_wrong_call(shop: Path, agent: str, run_id: str, said: str) -> None:
    """A module, an attribute, a store, a run."""
    done = run("resume", agent, run_id, "--approve-all")
    assert (2, True) == (done.exit_code, said in done.stderr), done.stderr


def test_an_agent_that_exists_within_a_connection(shop: Path) -> None:
    """A function gives its context: entered for the look and for the resumed run, and left after each."""
    assert "r-1\n" == run("runs", "shop:connected").output
    first, _ = digests(shop)
    wrong = run("resume", "shop:connected", "r-1", "--approve", first)
    assert (2, True) == (wrong.exit_code, "all pending ones at once; nothing was done" in wrong.stderr)
    done = run("resume", "shop:connected", "r-1", "--approve-all")
    assert (0, "r-1 completed: Done: paid 10, paid 20.\n") == (done.exit_code, done.output)
    assert [] == sys.modules["shop"].entered


def test_a_connection_that_is_not_had_exits_with_1(shop: Path) -> None:
    """As a sentence, and the run still waits."""
    done = run("resume", "shop:lost", "r-1", "--approve-all")
    assert (1, "the server cannot be reached\n") == (done.exit_code, done.stderr)
    assert "r-1\n" == run("runs", "shop:agent").output


def test_a_run_that_fails_exits_with_1(shop: Path) -> None:
    """And says by what: here the conversation went on meanwhile."""
    store = SQLiteStore(shop / "shop.db")

    async def meanwhile() -> None:
        made = Agent("other", ScriptedModel(["hi"]), store=store)
        await made.run("hello", conversation="c")
        await store.close()

    anyio.run(meanwhile)
    done = run("resume", "shop:agent", "r-1", "--approve-all")
    assert (1, True) == (done.exit_code, "the run failed" in done.stderr)
    assert "has 2 messages" in done.stderr


def test_another_agent_than_the_one_that_was_suspended(shop: Path) -> None:
    """Its list has changed: refused by name, unless that is allowed."""
    text = SHOP.replace("capabilities=[RequireApproval(is_destructive)]", "capabilities=[RequireApproval()]")
    (shop / "shop.py").write_text(text)
    refused = process("resume", "shop:agent", "r-1", "--approve-all", folder=shop)
    assert (1, True) == (refused.returncode, "RequireApproval is configured otherwise" in refused.stderr)
    allow = ["--allow-changed", "RequireApproval"]
    assert 0 == process("resume", "shop:agent", "r-1", "--approve-all", *allow, folder=shop).returncode


def at_a_terminal(folder: Path, typed: str) -> tuple[int, str]:
    """Run `resume` at a terminal, and type; return the exit code and what was printed."""
    mine, theirs = pty.openpty()
    line = [sys.executable, "-m", "capfold.runtime", "resume", "shop:agent", "r-1"]
    child = subprocess.Popen(line, cwd=folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    os.close(theirs)
    os.write(mine, typed.encode())
    output, _ = child.communicate(timeout=60)
    os.close(mine)
    return child.returncode, output.decode()


def test_asked_at_a_terminal(shop: Path) -> None:
    """Call by call: the first with other arguments, the second denied."""
    code, output = at_a_terminal(shop, 'e\n{"amount": 5, "to": "eve"}\nn\nno more\n')
    assert (0, ["5 eve"]) == (code, paid(shop))
    assert "Done: paid 5, no more." in output


def test_leaving_the_terminal_decides_nothing(shop: Path) -> None:
    """Even when the first call was approved already."""
    code, _ = at_a_terminal(shop, "y\nq\n")
    assert (0, []) == (code, paid(shop))
    assert "r-1\n" == run("runs", "shop:agent").output
