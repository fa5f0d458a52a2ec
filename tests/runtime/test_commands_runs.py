"""`capfold runs ...` on a database: runs are seen, decided, forked and stopped by a process that has no agent."""

import json
import sys
from pathlib import Path

import pytest

from tests.runtime.durable_shop import effects, make, result, run, start

pytest.importorskip("dbos", reason="dbos is missing: it is the extra `dbos`")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty database, in whose folder a shop stands."""
    made = f"sqlite:///{tmp_path}/runs.sqlite"
    make(tmp_path, made)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.delenv("CAPFOLD_URL", raising=False)
    return made


def test_runs_are_listed_and_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of all, the newest first, or JSON; one in full: its steps, what it waits for, came to or failed by."""
    start(**{"r-hello": "hi", "r-pay": "1", "r-broken": "break"})
    monkeypatch.setenv("CAPFOLD_URL", url)

    listed = run("runs", "list")
    assert 0 == listed.exit_code, listed.output
    head, *lines = listed.stdout.splitlines()
    assert ["RUN", "STATUS", "CREATED", "WORKER", "WAITS", "FOR"] == head.split()
    assert {"r-hello": "completed", "r-pay": "waiting", "r-broken": "failed"} == {
        line.split()[0]: line.split()[1] for line in lines
    }
    assert any(line.endswith('shop calls pay with {"amount": 1}') for line in lines)

    (waiting,) = json.loads(run("runs", "list", "--status", "waiting", "--json").stdout)
    assert ("r-pay", "waiting", "pay") == (
        waiting["run_id"],
        waiting["status"],
        waiting["pending"][0]["tool"],
    )
    assert 1 == len(json.loads(run("runs", "list", "--limit", "1", "--json").stdout))

    shown = run("runs", "show", "r-pay").stdout
    assert 'shop calls pay with {"amount": 1}' in shown
    assert "step 1      model" in shown
    assert "result      Hello." in run("runs", "show", "r-hello").stdout
    assert "no line to the model" in run("runs", "show", "r-broken").stdout
    hello = json.loads(run("runs", "show", "r-hello", "--json").stdout)
    assert ("Hello.", None, 1) == (hello["content"], hello["failure"], hello["step"])
    assert "model" in hello["steps"]["1"]
    assert json.loads(run("runs", "show", "r-broken", "--json").stdout)["failure"]


def test_an_empty_database_has_an_empty_list(url: str) -> None:
    """Nothing is printed as a table, and an empty array as JSON."""
    start()
    assert (0, "") == ((listed := run("runs", "list", "--url", url)).exit_code, listed.stdout)
    assert [] == json.loads(run("runs", "list", "--url", url, "--json").stdout)


def test_a_decision_waits_for_a_worker(url: str, tmp_path: Path) -> None:
    """It is kept while no worker is there; whoever comes goes on by it, and nobody can decide otherwise."""
    start(**{"r-pay": "1"})
    shown = run("runs", "decide", "r-pay", "--url", url)
    assert 0 == shown.exit_code
    assert "the run still waits" in shown.stderr
    digest = shown.stdout.split()[0]

    decided = run("runs", "decide", "r-pay", "--url", url, "--approve", digest)
    assert (0, "r-pay decided\n", []) == (decided.exit_code, decided.stdout, effects(tmp_path))
    assert 0 == run("runs", "decide", "r-pay", "--url", url, "--approve", digest).exit_code
    otherwise = run("runs", "decide", "r-pay", "--url", url, "--deny", digest)
    assert (2, True) == (otherwise.exit_code, "decided otherwise already" in otherwise.stderr)

    assert ("completed", "Done: paid 1.") == result("r-pay")
    assert ["begun 1", "paid 1"] == effects(tmp_path)
    late = run("runs", "decide", "r-pay", "--url", url, "--approve-all")
    assert (2, True) == (late.exit_code, "waits for no decision: it is completed" in late.stderr)


def test_a_decision_may_come_from_a_file(url: str, tmp_path: Path) -> None:
    """Edited arguments are what runs."""
    start(**{"r-pay": "1"})
    (pending,) = json.loads(run("runs", "show", "r-pay", "--url", url, "--json").stdout)["pending"]
    file = tmp_path / "decisions.json"
    file.write_text(json.dumps({pending["digest"]: {"type": "Edit", "arguments": {"amount": 2}}}))
    assert 0 == run("runs", "decide", "r-pay", "--url", url, "--decisions", str(file)).exit_code
    assert ("completed", "Done: paid 2.") == result("r-pay")


def test_malformed_decisions_are_wrong_calls(url: str, tmp_path: Path) -> None:
    """Each says what is wrong; the run still waits."""
    start(**{"r-pay": "1"})
    file = tmp_path / "decisions.json"
    file.write_text('{"abc": {"type": "Perhaps"}}')
    for options, said in [
        (["--approve", "zzz"], "begins the digest of no call"),
        (["--answer", "zzz"], "DIGEST=TEXT"),
        (["--decisions", str(file)], "the decision for 'abc' cannot be read"),
    ]:
        wrong = run("runs", "decide", "r-pay", "--url", url, *options)
        assert (2, True) == (wrong.exit_code, said in wrong.stderr), wrong.output
    file.write_text('{"abc": {"type": "Approve"}}')
    unknown = run("runs", "decide", "r-pay", "--url", url, "--decisions", str(file))
    assert (2, True) == (unknown.exit_code, "'abc'" in unknown.stderr), unknown.output
    assert 1 == len(json.loads(run("runs", "list", "--status", "waiting", "--json", "--url", url).stdout))


def test_a_fork_shares_what_was_before(url: str, tmp_path: Path) -> None:
    """From the second step on it is done anew: the payment, and the decision on it, are those of the first run."""
    start(**{"r-pay": "1"})
    run("runs", "decide", "r-pay", "--url", url, "--approve-all")
    result("r-pay")
    forked = run("runs", "fork", "r-pay", "2", "--url", url)
    assert 0 == forked.exit_code, forked.output
    (new,) = forked.stdout.split()
    assert ("completed", "Done: paid 1.") == result(new)
    assert ["begun 1", "paid 1"] == effects(tmp_path)
    assert "forked from r-pay" in run("runs", "show", new, "--url", url).stdout
    beyond = run("runs", "fork", "r-pay", "9", "--url", url)
    assert (2, True) == (beyond.exit_code, "from a step that it reached, not from 9" in beyond.stderr)


def test_a_stop_ends_a_run_that_waits(url: str, tmp_path: Path) -> None:
    """It ends as a result once a worker has it; one that has ended stays as it is."""
    start(**{"r-pay": "1"})
    asked = run("runs", "stop", "r-pay", "The shop closes.", "--url", url)
    assert (0, "r-pay is asked to stop\n") == (asked.exit_code, asked.stdout), asked.output
    assert ("stopped", "The shop closes.") == result("r-pay")
    assert [] == effects(tmp_path)
    again = run("runs", "stop", "r-pay", "Again.", "--url", url)
    assert (0, "r-pay had ended: stopped\n") == (again.exit_code, again.stdout)
    assert 2 == run("runs", "stop", "r-pay", "", "--url", url).exit_code


def test_unknown_runs_are_named(url: str) -> None:
    """Every command that takes a run says which one there is not."""
    start()
    for words in (
        ["show", "r-1"],
        ["decide", "r-1", "--approve-all"],
        ["fork", "r-1", "1"],
        ["stop", "r-1", "Stop."],
    ):
        unknown = run("runs", *words, "--url", url)
        assert (2, True) == (unknown.exit_code, "no durable run 'r-1'" in unknown.stderr), unknown.output


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("nonsense", 2, "a URL is sqlite:///FILE or postgresql://..., not 'nonsense'"),
        ("mysql://root:secret@localhost/x", 2, "SQLite or PostgreSQL"),
        ("sqlite://", 2, "need a file"),
        ("sqlite:///missing.sqlite", 2, "there is no file missing.sqlite"),
        ("sqlite:///empty.sqlite", 2, "no durable runs in sqlite:///empty.sqlite"),
        (
            "postgresql://someone:secret@127.0.0.1:1/x",
            1,
            "cannot reach postgresql://someone:***@127.0.0.1:1/x",
        ),
    ],
)
def test_wrong_urls_are_told_apart(
    given: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with a database is one sentence, without its password; no file is made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.sqlite").touch()
    wrong = run("runs", "list", "--url", given)
    assert (code, True) == (wrong.exit_code, said in wrong.stderr), wrong.output
    assert "secret" not in wrong.output
    assert not (tmp_path / "missing.sqlite").exists()


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DBOS all of these say how to get it; the runs in an agent's own store need none."""
    monkeypatch.setitem(sys.modules, "dbos", None)
    for name in [name for name in sys.modules if name.startswith("capfold.runtime.dbos_")]:
        monkeypatch.delitem(sys.modules, name)
    for words in (["runs", "list"], ["runs", "show", "r"], ["worker", "shop:agent"]):
        missing = run(*words, "--url", "sqlite:///runs.sqlite")
        assert (2, "durable runs need DBOS: pip install 'capfold[dbos]'\n") == (
            missing.exit_code,
            missing.stderr,
        )


def test_a_first_word_that_is_neither_is_a_wrong_call() -> None:
    """It says what it could have been."""
    wrong = run("runs", "lst")
    assert (2, True) == (wrong.exit_code, "'lst' is neither MODULE:ATTRIBUTE" in wrong.stderr)
