"""The command line: what it prints and with what it exits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capfold.capabilities.frozen import canonical
from capfold.runtime import __main__ as entry_point
from capfold.runtime.commands import capfold
from capfold.runtime.log import Log
from capfold.runtime.rules import rules_json, rules_markdown, rules_mermaid, rules_text
from capfold.runtime.timeline import timeline
from tests.runtime.entries_story import story

KEY = "a key of the auditor"


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(capfold, arguments, env=env)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file that holds a whole log."""
    path = tmp_path / "log.jsonl"
    path.write_text(Log(story()).to_jsonl())
    return path


def test_rules() -> None:
    """The four forms of the rules."""
    assert (0, rules_text()) == ((done := run("rules")).exit_code, done.output)
    assert (0, rules_markdown()) == ((done := run("rules", "--markdown")).exit_code, done.output)
    assert (0, rules_mermaid()) == ((done := run("rules", "--mermaid")).exit_code, done.output)
    assert canonical(rules_json()) == canonical(json.loads(run("rules", "--json").output))


def test_show(file: Path) -> None:
    """The timeline of a file."""
    done = run("log", "show", str(file))
    assert (0, timeline(Log(story()))) == (done.exit_code, done.output)


def test_show_of_a_torn_log_shows_what_is_there(file: Path) -> None:
    """The records before the torn one are shown, the torn one is named, and the exit code says so."""
    file.write_text(file.read_text()[:-5])
    done = run("log", "show", str(file))
    assert (1, timeline(Log(story()[:-1]))) == (done.exit_code, done.stdout)
    assert "record 9: the last line is torn" in done.stderr


def test_verify(file: Path) -> None:
    """A whole log is accepted, with the head that it has and no other."""
    head = Log(story()).head
    for more in ((), ("--head", head)):
        done = run("log", "verify", str(file), *more)
        assert 0 == done.exit_code
        assert f"10 records hold together, sealed without a key; head {head}" in done.output
    assert 1 == run("log", "verify", str(file), "--head", "0" * 64).exit_code


def test_verify_finds_a_flipped_byte(file: Path) -> None:
    """One flipped byte is found by record number."""
    data = bytearray(file.read_bytes())
    data[data.index(b"Forger")] ^= 1
    file.write_bytes(data)
    done = run("log", "verify", str(file))
    assert 1 == done.exit_code
    assert "record 3:" in done.stderr
    assert "" == done.stdout


def test_verify_names_the_first_bad_record_though_a_later_line_cannot_be_read(file: Path) -> None:
    """An edit before a torn line is the first bad record."""
    file.write_text(file.read_text().replace("Forger", "Forged")[:-5])
    assert "record 3:" in run("log", "verify", str(file)).stderr


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_verify_recognises_a_cut_log(file: Path, cut: int) -> None:
    """A log that ends before its runs do does not pass, though each of its records holds."""
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:cut]))
    done = run("log", "verify", str(file))
    assert 1 == done.exit_code
    assert f"record {cut} is missing: the log ends before these runs do: run-1" in done.stderr


def test_verify_with_a_key(tmp_path: Path) -> None:
    """The key is named by its environment variable; without it, and with another, the log does not pass."""
    file = tmp_path / "keyed.jsonl"
    file.write_text(Log(story()).to_jsonl(key=KEY.encode()))
    arguments = ("log", "verify", str(file), "--key-env", "AUDIT_KEY")
    assert 0 == run(*arguments, env={"AUDIT_KEY": KEY}).exit_code
    assert 1 == run(*arguments, env={"AUDIT_KEY": "another"}).exit_code
    assert 1 == run("log", "verify", str(file)).exit_code
    missing = run(*arguments)
    assert 2 == missing.exit_code
    assert "AUDIT_KEY is not set" in missing.stderr


@pytest.mark.parametrize("content", ["", "hello\n", '{"a": 1}\n'])
@pytest.mark.parametrize("command", ["show", "verify"])
def test_what_is_no_log(tmp_path: Path, command: str, content: str) -> None:
    """A file that is no log gets a clear error and exit code 1."""
    file = tmp_path / "else.txt"
    file.write_text(content)
    done = run("log", command, str(file))
    assert 1 == done.exit_code
    assert "log" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("log", "show", "missing.jsonl"), ("log", "show"), ("rule",), ("rules", "--x")]
)
def test_wrong_calls(arguments: tuple[str, ...]) -> None:
    """What cannot be meant exits with 2."""
    assert 2 == run(*arguments).exit_code


def test_options_that_exclude_each_other() -> None:
    """Neither wins in silence: both are named."""
    for arguments in (("demo", "--yes", "--no"), ("rules", "--json", "--mermaid")):
        done = run(*arguments)
        assert 2 == done.exit_code
        assert f"{arguments[-1]} exclude each other" in done.stderr or f"{arguments[1]} and" in done.stderr


def test_without_click(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the extra the command says how to get it, and exits with 2."""
    monkeypatch.setitem(sys.modules, "click", None)
    with pytest.raises(SystemExit) as raised:
        entry_point.main()
    assert 2 == raised.value.code
    assert "pip install capfold[cli]" in capsys.readouterr().err


def test_as_a_module() -> None:
    """`python -m capfold.runtime` is the command too."""
    command = [sys.executable, "-m", "capfold.runtime", "rules", "--mermaid"]
    assert rules_mermaid() == subprocess.run(command, check=True, capture_output=True, text=True).stdout
