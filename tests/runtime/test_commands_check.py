"""`capfold check`: what it loads, what it prints, with what it exits."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capfold.runtime.commands import capfold
from capfold.runtime.laws import LAWS

MODULE = '''
from attrs import evolve, frozen
from capfold.capabilities import Capability, RequireApproval, SelectTools, ToolBudget, tool
from capfold.runtime import Agent

@tool
def pay(amount: int) -> str:
    """Pay."""
    return "paid"

@frozen
class Copies(Capability):
    def after_model_request(self, state):
        return evolve(state)

class Shelf:
    budget = ToolBudget(1)

good = ToolBudget(1)
bad = Copies()
several = [SelectTools({"pay"}), SelectTools({"search"}, key="Second")]
mixed = [ToolBudget(1), Copies()]
agent = Agent("desk", "test", tools=[pay.with_capabilities(RequireApproval())], capabilities=[ToolBudget(1)])
bare = Agent("bare", "test")
number = 7
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the module into the present folder, and forget it afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    Path("checked_desk.py").write_text(MODULE)
    Path("checked_broken.py").write_text("1 / 0\n")
    Path("checked_poor.py").write_text("import nobody_has_this\n")
    for name in ("checked_desk", "checked_broken", "checked_poor"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def check(target: str, *more: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(capfold, ["check", target, "--examples", "10", *more])


@pytest.mark.parametrize("target", ["good", "Shelf.budget", "agent"])
def test_what_obeys_the_laws(target: str) -> None:
    """Exit code 0, and a row for each law."""
    done = check(f"checked_desk:{target}")
    assert 0 == done.exit_code
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.split()}
    assert set(LAWS) <= set(rows)
    assert ("ok", "-") == (rows["pure"][0], rows["hidden"][0])
    assert "no law was seen broken; 10 runs for each search, --seed " in done.stdout


def test_an_agent_is_checked_with_what_stands_on_its_tools() -> None:
    """Both have a column."""
    first = check("checked_desk:agent").stdout.splitlines()[0]
    assert ["law", "ToolBudget", "RequireApproval"] == first.split()


def test_what_breaks_a_law() -> None:
    """Exit code 1, the law in the table, and the report with its line of code."""
    done = check("checked_desk:mixed")
    assert 1 == done.exit_code
    assert ["silent", "ok", "broken"] in [line.split() for line in done.stdout.splitlines()]
    assert "Copies.after_model_request returned an equal copy" in done.stdout
    assert "check_law(cap, 'silent'" in done.stdout
    assert "1 broken;" in done.stdout


def test_what_a_list_does_to_itself_is_no_failure() -> None:
    """It is shown."""
    done = check("checked_desk:several", "--examples", "40")
    assert 0 == done.exit_code
    assert "nothing_left SelectTools and Second in before_model_request" in done.stdout


def test_the_results_as_json() -> None:
    """All of it, in one document."""
    done = check("checked_desk:bad", "--json", "--seed", "3")
    assert 1 == done.exit_code
    results = json.loads(done.stdout)
    assert (10, 3) == (results["examples"], results["seed"])
    assert ("broken", "ok") == (
        results["capabilities"]["Copies"]["silent"],
        results["capabilities"]["Copies"]["pure"],
    )
    (violation,) = results["violations"]
    assert ("silent", "Copies", "after_model_request") == (
        violation["law"],
        violation["key"],
        violation["hook"],
    )
    findings = json.loads(check("checked_desk:several", "--json", "--examples", "40").stdout)["findings"]
    assert ["nothing_left"] == [one["kind"] for one in findings]


def test_the_same_seed_gives_the_same_results() -> None:
    """So that a finding can be looked at again."""
    first, second = (check("checked_desk:mixed", "--seed", "11").stdout for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("checked_desk", "'checked_desk' is no MODULE:ATTRIBUTE, such as desk.agents:payments"),
        ("checked_desk:", "is no MODULE:ATTRIBUTE"),
        ("checked_nowhere:x", "cannot import 'checked_nowhere': it is nowhere on the path"),
        ("checked_poor:x", "'nobody_has_this', which it imports, is nowhere on the path"),
        ("checked_broken:x", "importing 'checked_broken' raised ZeroDivisionError: division by zero"),
        ("checked_desk:goood", "there is no 'goood'; did you mean 'good'?"),
        ("checked_desk:Copies", "Copies is a class: check an instance of it"),
        ("checked_desk:number", "is neither a capability nor a list of them nor an agent, but int"),
        ("checked_desk:bare", "is an agent without capabilities"),
    ],
)
def test_what_cannot_be_checked(target: str, said: str) -> None:
    """Exit code 2, and what would be right."""
    done = check(target)
    assert 2 == done.exit_code
    assert said in done.stderr
    assert "" == done.stdout


def test_without_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the command says how to get it."""
    for name in [name for name in sys.modules if name.startswith("capfold.runtime.laws")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    done = check("checked_desk:good")
    assert 2 == done.exit_code
    assert "pip install capfold[testing]" in done.stderr
