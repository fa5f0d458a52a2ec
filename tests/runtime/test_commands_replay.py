"""`capfold log replay|what-if|diff|why|pytest` on files, with an agent and lists of a module beside them."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capfold.runtime import JsonLines, RunError
from capfold.runtime.commands import capfold
from capfold.runtime.loading import load_agent

SHOP = '''
import itertools
from capfold.capabilities import Capability, RefuseTools, RequireApproval, ToolBudget, call, tool
from capfold.runtime import Agent, Approve, Deny, Limits, ScriptedModel, JsonLines

counter = itertools.count()


class Impure(Capability):
    def before_model_request(self, state):
        return state.note(f"number {next(counter)}")


@tool
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def decide(requests):
    return [Deny() if request.arguments["n"] > 5 else Approve() for request in requests]


def build(*capabilities, **options):
    script = [call("pay", {"n": 1}, id="a"), call("pay", {"n": 9}, id="b"), "done"]
    return Agent("shop", ScriptedModel(script), tools=[pay], capabilities=capabilities, approver=decide, **options)


gate = RequireApproval({"pay"})
agent = build(gate, ToolBudget(9))
impure = build(Impure())
limited = build(gate, limits=Limits(tool_calls=1))
own = build(Impure(), limits=Limits(tool_calls=1))
class Breaks(Capability):
    def after_tool_execute(self, call):
        return call.fail("enough") if call.arguments["n"] > 5 else call


child = build(RequireApproval({"pay"}), Breaks())
children = child.given.capabilities
family = Agent(
    "family",
    ScriptedModel([call("shop", {"task": "pay"}, id="c"), "done"]),
    tools=[child.as_tool("Pay.")],
    capabilities=[ToolBudget(5)],
)
none = []
strict = [gate, RefuseTools({"pay"})]
nonsense = 5
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the module, and one log for each agent in it that was run."""
    module = f"shop_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def log_of(shop: Path, name: str, file: str, run_id: str | None = None) -> Path:
    """Run an agent of the module, with its log in a file."""
    agent = load_agent(f"shop_{shop.name}:{name}")
    path = shop / file
    sink = JsonLines(path)
    given = agent.given
    object.__setattr__(
        agent,
        "given",
        type(given)(given.capabilities, given.tools, given.approver, None, (sink,), given.port),
    )
    try:
        agent.run_sync("go", run_id=run_id)
    except RunError as error:
        assert "limit" in str(error)  # noqa: PT017  # the runs that fail, fail by it
    return path


def cli(shop: Path, *arguments: str) -> Result:
    """Run `capfold log`."""
    return CliRunner().invoke(
        capfold, ["log", *(one.replace("shop:", f"shop_{shop.name}:") for one in arguments)]
    )


def test_replay(shop: Path) -> None:
    """Equal, or the first difference and exit 1; a wrong call is exit 2."""
    path = log_of(shop, "agent", "a.jsonl")
    done = cli(shop, "replay", str(path), "--agent", "shop:agent")
    assert (0, True) == (done.exit_code, "records came out as they are; the run completed" in done.output)
    other = cli(shop, "replay", str(log_of(shop, "impure", "b.jsonl")), "--agent", "shop:impure")
    assert 1 == other.exit_code
    assert "Impure before_model_request in step 1 came out differently: recorded | replayed: " in other.output
    assert 'changes.notes.added[0]: "number 0" | "number 3"' in other.output
    for target, said in [
        ("shop:nonsense", "is no Agent, but int"),
        ("shop:agnt", "did you mean 'agent'?"),
        ("nowhere:agent", "nowhere on the path"),
        ("shop", "is no MODULE:ATTRIBUTE"),
    ]:
        wrong = cli(shop, "replay", str(path), "--agent", target)
        assert 2 == wrong.exit_code
        assert said in wrong.output
    path.write_text("no log\n")
    assert (1, True) == (
        (bad := cli(shop, "replay", str(path), "--agent", "shop:agent")).exit_code,
        "record 0" in bad.output,
    )


def test_what_if(shop: Path) -> None:
    """Over a folder: exit 1 for what is newly allowed, 0 for what is newly refused."""
    logs = shop / "logs"
    logs.mkdir()
    log_of(shop, "agent", "logs/a.jsonl")
    log_of(shop, "limited", "logs/b.jsonl")
    same = cli(shop, "what-if", str(logs), "--capabilities", "shop:agent")
    assert (0, True) == (same.exit_code, "0 calls newly allowed in 2 logs" in same.output)
    strict = cli(shop, "what-if", str(logs), "--capabilities", "shop:strict")
    assert (0, True) == (
        strict.exit_code,
        "newly refused: pay a in step 1: allowed -> refused" in strict.output,
    )
    none = cli(shop, "what-if", str(logs), "--capabilities", "shop:none")
    assert (1, True) == (none.exit_code, "newly allowed: pay b in step 2: refused -> allowed" in none.output)
    control = cli(
        shop, "what-if", str(logs / "a.jsonl"), "--capabilities", "shop:none", "--agent", "shop:agent"
    )
    assert 1 == control.exit_code
    assert "control" not in control.output
    assert 2 == cli(shop, "what-if", str(logs), "--capabilities", "shop:nonsense").exit_code
    empty = shop / "empty"
    empty.mkdir()
    assert 2 == cli(shop, "what-if", str(empty), "--capabilities", "shop:none").exit_code


def test_what_if_of_a_run_below(shop: Path) -> None:
    """Runs of sub-agents are named as not judged; one that is named is judged, wherever a log has it."""
    logs = shop / "logs"
    logs.mkdir()
    log_of(shop, "family", "logs/a.jsonl", "top")
    log_of(shop, "limited", "logs/b.jsonl")
    whole = cli(shop, "what-if", str(logs), "--capabilities", "shop:none", "--agent", "shop:family")
    assert "not judged, but taken as they were: the runs below it, top/c" in whole.output
    assert whole.output.endswith(" in 2 logs; runs of sub-agents that were not judged: 1\n")
    named = ["what-if", str(logs), "--run", "top/c", "--agent", "shop:family"]
    one = cli(shop, *named, "--capabilities", "shop:none")
    assert (1, True) == (one.exit_code, "run top/c: " in one.output)
    assert "newly allowed: pay b in step 2: refused -> allowed" in one.output
    same = cli(shop, *named, "--capabilities", "shop:children")
    assert (0, True) == (same.exit_code, "nothing would have been otherwise" in same.output)
    lost = cli(shop, "what-if", str(logs), "--capabilities", "shop:none", "--run", "top/d")
    assert (1, True) == (lost.exit_code, "no log has a run 'top/d'" in lost.output)


def test_why_and_pytest_of_a_run_below(shop: Path) -> None:
    """By its id; the list is that of its own agent."""
    path = log_of(shop, "family", "a.jsonl", "top")
    done = cli(shop, "why", str(path), "b", "--agent", "shop:family", "--run", "top/c")
    assert (0, True) == (done.exit_code, "Decided by RequireApproval" in done.output)
    case = cli(shop, "pytest", str(path), "--run", "top/c", "--capabilities", "shop:children")
    assert (0, True) == (case.exit_code, "def test_shop_fails_by_blocked" in case.output), case.output
    scope: dict[str, object] = {}
    exec(compile(case.output, "test_case.py", "exec"), scope)  # noqa: S102  # what the command has written
    test = scope["test_shop_fails_by_blocked"]
    assert callable(test)
    test()


def test_a_control_that_finds_something(shop: Path) -> None:
    """With another agent's list as the control, nothing can be relied on: exit 1, and a sentence."""
    path = log_of(shop, "agent", "a.jsonl")
    done = cli(shop, "what-if", str(path), "--capabilities", "shop:strict", "--agent", "shop:impure")
    assert 1 == done.exit_code
    assert "the control lane, with the agent's own list, is not empty" in done.output


def test_diff(shop: Path) -> None:
    """Equal is 0; different is 1, with the first difference."""
    one, other = log_of(shop, "agent", "a.jsonl"), log_of(shop, "limited", "b.jsonl")
    assert 0 == cli(shop, "diff", str(one), str(one)).exit_code
    done = cli(shop, "diff", str(one), str(other))
    assert 1 == done.exit_code
    assert "facts.limits.tool_calls: nothing | 1" in done.output


def test_why(shop: Path) -> None:
    """The set that decided a call."""
    path = log_of(shop, "agent", "a.jsonl")
    done = cli(shop, "why", str(path), "b", "--agent", "shop:agent")
    assert (0, True) == (done.exit_code, "Decided by RequireApproval" in done.output)
    assert 1 == cli(shop, "why", str(path), "c", "--agent", "shop:agent").exit_code


def test_pytest(shop: Path) -> None:
    """A file that runs: of a list that the log describes, of one that is named, and an agent's."""
    path = log_of(shop, "limited", "a.jsonl")
    own = "load_capabilities(", "limited.capabilities"
    for given, listed in zip(([], ["--capabilities", "shop:limited"]), own, strict=True):
        done = cli(shop, "pytest", str(path), *given)
        assert 0 == done.exit_code, done.output
        assert f"CAPABILITIES = {listed}" in done.output
        scope: dict[str, object] = {}
        exec(compile(done.output, "test_case.py", "exec"), scope)  # noqa: S102  # what the command has written
        (test,) = (one for name, one in scope.items() if name.startswith("test_"))
        assert callable(test)
        test()
    blank = cli(shop, "pytest", str(log_of(shop, "own", "b.jsonl")))
    assert (0, True) == (blank.exit_code, "# Fill in the list of the run" in blank.output)
    whole = cli(shop, "pytest", str(log_of(shop, "agent", "c.jsonl")))
    assert (1, True) == (whole.exit_code, "did not fail: it ended as completed" in whole.output)
