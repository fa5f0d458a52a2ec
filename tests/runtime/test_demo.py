"""The demo: what it shows is computed from what happened, whichever way the person decides."""

import io
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply as Scripted
from llmock.scenarios import ToolCall as Asked

from capfold.capabilities.messages import ToolMessage, content_text
from capfold.runtime import demo, demo_terminal
from capfold.runtime.commands import capfold
from capfold.runtime.demo_lists import script
from capfold.runtime.demo_terminal import Person
from capfold.runtime.log import read_log, verify

LOGS = ("1-as-written.jsonl", "2-around-the-tool.jsonl", "3-while-judged.jsonl")
OPEN = ("INV-2041", 10)


class Terminal(io.StringIO):
    """An input that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def run(*arguments: str) -> Result:
    """Run the command in this process, where there is no terminal."""
    return CliRunner().invoke(capfold, ["demo", *arguments])


def paid(folder: Path) -> list[list[int]]:
    """Return, for each ledger, the amounts that were paid for the open invoice."""
    found = []
    for path in sorted((folder / "ledgers").iterdir()):
        db = sqlite3.connect(path)
        found.append([row[0] for row in db.execute("SELECT amount FROM payments WHERE invoice = 'INV-2041'")])
        db.close()
    return found


def rows(output: str) -> list[list[str]]:
    """Return the cells of the table at the end."""
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("run   "))
    return [re.split(" {2,}", line) for line in lines[start + 2 : start + 5]]


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "decides yes"), (("--yes",), "and says: yes"), (("--no",), "and says: no")]
)
def test_every_decision(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    """Approved, 10 is paid once; denied, nothing is; 1000 never is; the logs hold; it exits with 0."""
    folder = tmp_path / "desk"
    done = run("--folder", str(folder), *arguments)
    assert 0 == done.exit_code, done.output
    assert said in done.output
    assert "" == done.stderr
    ten = [] if "--no" in arguments else [10]
    assert [ten, [], []] == paid(folder)
    assert [True] * 3 == [verify(read_log(folder / "logs" / name)).complete for name in LOGS]
    yes, no = "10 (INV-2041)", "nothing: said no"
    told = yes if ten else no
    ran = yes if ten else "nothing"
    expected = [[told, ran, ran], [told, "nothing", "nothing"], ["(was not asked)", "nothing", "nothing"]]
    assert expected == [row[1:4] for row in rows(done.output)]
    assert all(row[4].endswith("records verified") for row in rows(done.output))


def test_what_was_forged_is_told(tmp_path: Path) -> None:
    """The output names who tried what: the counter was kept, the amount was refused, by name."""
    output = run("--folder", str(tmp_path / "desk")).output
    assert 4 == output.count("RESTORED tool_calls: tried 0, kept ")
    assert 4 == output.count("warning: ForgeCounter.before_model_request wrote tool_calls: restored")
    assert 2 == output.count("REJECTED arguments: tried {amount=1000,")
    for culprit in ("CentsAroundTool.wrap_tool_execute", "CentsWhenJudged.admit_tool_execute"):
        assert f"HookError: {culprit} may not write arguments" in output
    own = [line for line in output.splitlines() if str(tmp_path) not in line]
    assert 100 >= max(map(len, own))
    assert "\x1b" not in output


@pytest.mark.parametrize("name", LOGS)
def test_a_flipped_byte_is_found(tmp_path: Path, name: str) -> None:
    """One flipped byte in any log is found by the number of its record."""
    run("--folder", str(tmp_path / "desk"))
    path = tmp_path / "desk" / "logs" / name
    assert 0 == CliRunner().invoke(capfold, ["log", "verify", str(path)]).exit_code
    data = bytearray(path.read_bytes())
    place = data.rindex(b"INV-2041")
    data[place] ^= 1
    path.write_bytes(data)
    done = CliRunner().invoke(capfold, ["log", "verify", str(path)])
    assert 1 == done.exit_code
    assert f"record {data[:place].count(10)}:" in done.stderr


@pytest.mark.parametrize(
    "entry", [("-m", "capfold.runtime"), ("-c", "from capfold.runtime.__main__ import main; main()")]
)
def test_in_an_empty_environment(tmp_path: Path, entry: tuple[str, str]) -> None:
    """No variable is needed, as on a fresh machine; nothing is written to stderr."""
    system = {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if "SYSTEMROOT" in os.environ else {}
    command = [sys.executable, *entry, "demo", "--folder", str(tmp_path / "desk")]
    done = subprocess.run(
        command, check=False, env=system, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert "As promised" in done.stdout
    assert [[10], [], []] == paid(tmp_path / "desk")


@pytest.mark.parametrize(
    ("model", "text"),
    [("openai:gpt", "OPENAI_API_KEY"), ("nonsense", "unknown model 'nonsense'"), ("test", "only echoes")],
)
def test_a_model_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, text: str
) -> None:
    """A missing key and an unknown model are one line and exit code 2; nothing is left behind."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    done = run("--model", model, "--folder", str(tmp_path / "desk"))
    assert (2, "") == (done.exit_code, done.stdout)
    assert text in done.stderr
    assert 1 == done.stderr.count("\n")
    assert not (tmp_path / "desk").exists()


def test_a_folder_with_contents_is_left_alone(tmp_path: Path) -> None:
    """A folder that is not empty, and one that is a file's, are refused before anything is written."""
    (tmp_path / "mine.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "mine.txt" / "desk"):
        done = run("--folder", str(folder))
        assert 2 == done.exit_code
        assert 1 == done.stderr.count("\n")
    assert ["mine.txt"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("answers", "amounts"),
    [(["y", "yes"], [[10], [], []]), (["Y ", "n"], [[10], [], []]), (["", None], [[], [], []])],
)
def test_asked_at_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str | None], amounts: list[list[int]]
) -> None:
    """What is typed decides each request; nothing typed, and no more input, is a no."""
    left = iter(answers)

    def typed(question: str) -> str:
        answer = next(left)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("sys.stdin", Terminal())
    said: list[str] = []
    assert 0 == demo.run_demo(None, None, tmp_path / "desk", said.append)
    assert [] == list(left)
    assert amounts == paid(tmp_path / "desk")


async def test_the_model_sees_no_account_number(tmp_path: Path) -> None:
    """Account numbers are in the invoice and the log, and in no request."""
    place = demo.made_folder(tmp_path / "desk")
    model = script()
    account = await demo.play(demo.SCENES[0], model, Person("yes", lambda text: None), place)
    model.assert_complete()
    seen = [
        content_text(message.content)
        for request in model.requests
        for message in request.messages
        if isinstance(message, ToolMessage)
    ]
    assert any("[account hidden]" in text for text in seen)
    assert [] == [text for text in seen if "DE89" in text]
    assert "DE89" in account.log.to_jsonl()
    assert all("erase_payment" not in {tool.name for tool in request.tools} for request in model.requests)


def test_a_real_model(tmp_path: Path, llmock: LLMock) -> None:
    """The same job over the wire, with other words: what is checked does not depend on what is said."""
    asked = (
        Scripted(tool_calls=(Asked("search_ledger", {"text": ""}), Asked("list_invoices", {}))),
        Scripted(tool_calls=(Asked("read_invoice", {"number": OPEN[0]}),)),
        Scripted(tool_calls=(Asked("pay", {"invoice": OPEN[0], "amount": OPEN[1]}),)),
    )
    llmock.add(*asked, Scripted(text="All settled."), *asked, *asked)
    done = run("--model", "openai:some-model", "--folder", str(tmp_path / "desk"))
    assert 0 == done.exit_code, done.output
    assert [[10], [], []] == paid(tmp_path / "desk")
    assert 10 == len(llmock.requests)


def test_a_real_model_that_does_not_pay(tmp_path: Path, llmock: LLMock) -> None:
    """A model that never pays shows nothing, and the demo does not claim that it did."""
    llmock.add(*(Scripted(text="I would rather not.") for _ in range(3)))
    done = run("--model", "openai:some-model", "--folder", str(tmp_path / "desk"))
    assert 1 == done.exit_code
    assert "the model never got as far as a payment" in done.output
    assert "As promised" not in done.output


def test_a_real_model_that_fails(tmp_path: Path, llmock: LLMock) -> None:
    """A model that cannot be reached ends the demo with one line that says why."""
    llmock.context_overflow()
    done = run("--model", "openai:some-model", "--folder", str(tmp_path / "desk"))
    assert 1 == done.exit_code
    assert "The demo ends here: the model failed: " in done.output
    assert "" == done.stderr


def test_painted() -> None:
    """A color ends where its text ends."""
    assert "\x1b[31mno\x1b[0m" == demo_terminal.painted("no", demo_terminal.RED)
