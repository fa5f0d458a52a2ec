"""`capfold worker`: processes that carry runs on, and hand them over when they are told to end."""

import signal
import sys
from pathlib import Path

import pytest

from tests.postgres import PostgresServer, postgres_server
from tests.runtime.durable_shop import LEASE, effects, make, run, start, until, worker

pytest.importorskip("dbos", reason="dbos is missing: it is the extra `dbos`")

__all__ = ["postgres_server"]


def set_up(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a shop on a database, in the folder that is the present one from now on."""
    make(folder, url)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.setenv("CAPFOLD_URL", url)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a shop on SQLite."""
    set_up(f"sqlite:///{tmp_path}/runs.sqlite", tmp_path, monkeypatch)
    return tmp_path


def status(run_id: str) -> str:
    """Return the status of a run, as the command line shows it."""
    shown = run("runs", "show", run_id).stdout.splitlines()
    (line,) = [line for line in shown if line.startswith("status")]
    return line.split()[1]


def approve(run_id: str) -> None:
    """Decide that what waits may run."""
    decided = run("runs", "decide", run_id, "--approve-all")
    assert 0 == decided.exit_code, decided.output


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_worker_hands_over_what_it_works_on(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Told to end in the middle of a step, it records that step and begins no other; the next worker does the rest."""
    url = f"sqlite:///{tmp_path}/runs.sqlite"
    if database == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.new_database()
    set_up(url, tmp_path, monkeypatch)
    start(**{"r-1": "8", "r-waits": "1"})
    with worker(tmp_path) as first:
        approve("r-1")
        until(lambda: effects(tmp_path) == ["begun 8"])
        first.tell()
        assert 0 == first.ended()
    assert "ended; 2 runs handed over" in first.said
    assert (["begun 8", "paid 8"], "queued", "waiting") == (
        effects(tmp_path),
        status("r-1"),
        status("r-waits"),
    )
    with worker(tmp_path) as second:
        until(lambda: status("r-1") == "completed")
        approve("r-waits")
        until(lambda: status("r-waits") == "completed")
        second.tell(signal.SIGINT)
        assert 0 == second.ended()
    assert ["begun 8", "paid 8", "begun 1", "paid 1"] == effects(tmp_path)
    assert "0 runs handed over" in second.said
    assert first.said.split()[1] != second.said.split()[1]


def test_a_step_that_outlasts_the_grace_is_interrupted(shop: Path) -> None:
    """The process ends all the same, though a thread is at work in it; the call is treated as one of a lost process."""
    start(**{"r-1": "hold"})
    with worker(shop, "--grace", "0") as first:
        approve("r-1")
        until(lambda: effects(shop) == ["begun"])
        first.tell()
        assert 0 == first.ended()
    with worker(shop, "--on-interrupted", "ask") as second:
        until(lambda: status("r-1") == "waiting")
        answered = run("runs", "show", "r-1").stdout
        second.tell()
        assert 0 == second.ended()
    assert "hold" in answered
    assert ["begun"] == effects(shop)


def test_a_second_signal_ends_at_once(shop: Path) -> None:
    """Whatever the grace; what it worked on is found by another worker when the lease is over."""
    start(**{"r-1": "600"})
    with worker(shop, "--lease", LEASE) as first:
        approve("r-1")
        until(lambda: effects(shop) == ["begun 600"])
        first.tell()
        assert first.process.stdout is not None
        first.process.stdout.readline()  # it says that it ends
        first.tell()
        assert -signal.SIGTERM == first.ended()
    with worker(shop, "--lease", LEASE) as second:
        until(lambda: status("r-1") == "completed")
        second.tell()
        assert 0 == second.ended()
    assert ["begun 600"] == effects(shop)
    assert "is lost: its runs go on elsewhere" in second.said


def test_a_durable_agent_brings_its_settings(shop: Path) -> None:
    """Its database and lease are in the code; an option for one of them is a wrong call."""
    start(**{"r-1": "1"})
    with worker(shop, agent="shop:durable") as only:
        approve("r-1")
        until(lambda: status("r-1") == "completed")
        only.tell()
        assert 0 == only.ended()
    wrong = run("worker", "shop:durable", "--lease", "3")
    assert (2, True) == (wrong.exit_code, "--lease: shop:durable is a DurableAgent" in wrong.stderr), (
        wrong.output
    )


def test_what_cannot_be_carried_on_is_a_wrong_call(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says what is missing."""
    for words, said in [
        (["shop:nothing"], "shop:nothing is no Agent, but int"),
        (["shop:agnt"], "did you mean 'agent'"),
        (["shop:agent", "--url", "nonsense"], "a URL is sqlite:///FILE or postgresql://..."),
        (["shop:agent", "--lease", "0.5"], "--lease"),
    ]:
        wrong = run("worker", *words)
        assert (2, True) == (wrong.exit_code, said in wrong.stderr), wrong.output
    monkeypatch.delenv("CAPFOLD_URL")
    wrong = run("worker", "shop:agent")
    assert (2, True) == (wrong.exit_code, "--url URL, or CAPFOLD_URL" in wrong.stderr), wrong.output
