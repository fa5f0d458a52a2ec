"""Logs in databases: one chain that many writers share; what was acknowledged is there, and every change is found."""

import functools
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from click.testing import CliRunner

from capfold.capabilities import RequireApproval, call, tool
from capfold.capabilities.messages import UserMessage
from capfold.runtime import (
    Agent,
    Approve,
    JsonLines,
    Log,
    LogError,
    PostgresLog,
    RunError,
    ScriptedModel,
    SinkFailed,
    SQLiteLog,
    SQLiteStore,
    StoreError,
    read_log,
    replay,
    sqlite_store,
    verify,
)
from capfold.runtime.commands import capfold
from tests.runtime.entries_story import story, write_by_threads
from tests.runtime.log_process import sink_at, start
from tests.runtime.store_places import Place, new_database, postgres_server
from tests.runtime.store_process import go, let_go

__all__ = ["new_database", "postgres_server"]

KEY = b"a key of the auditor"


@pytest.fixture
def place(new_database: Callable[[], Place]) -> Place:
    """Return a database for this test alone."""
    return new_database()


def lines(place: Place) -> str:
    """Return the stored lines, as a file of JSON lines has them."""
    return "".join(f"{row[0]}\n" for row in place.sql("SELECT line FROM capfold_log ORDER BY place"))


async def kept(place: Place, *logs: Log) -> None:
    """Write logs one after another, each in one write."""
    sink = sink_at(place.location)
    for log in logs:
        await sink.write(log)
    await sink.close()


def broken(place: Place) -> LogError:
    """Return what is wrong with a log that was changed."""
    with pytest.raises(LogError) as raised:
        verify(read_log(place.location))
    return raised.value


# --- one chain


async def test_written_as_it_goes(place: Place) -> None:
    """After each write the database holds exactly the records so far, in the lines that a file would have."""
    log, sink = Log(story()), sink_at(place.location)
    for n in range(len(log)):
        await sink.write(log[n : n + 1])
        assert n + 1 == verify(read_log(place.location)).records
    await sink.close()
    assert log.to_jsonl() == lines(place)


@pytest.mark.parametrize("key", [None, KEY])
async def test_two_sinks_take_turns(place: Place, key: bytes | None) -> None:
    """Writers of one database share one chain, closed in between or not."""
    sinks = [type(sink_at(place.location))(place.location, key=key) for _ in range(2)]
    log = Log(story())
    for n in range(len(log)):
        await sinks[n % 2].write(log[n : n + 1])
        if n % 3 == 0:
            await sinks[n % 2].close()
    for sink in sinks:
        await sink.close()
    assert log.to_jsonl(key=key) == lines(place)
    assert verify(read_log(place.location), key=key, head=log.head).complete


async def test_many_runs_at_once_share_a_sink(place: Place) -> None:
    """Records of interleaved runs are sealed in order of arrival; each run keeps its own chain of digests."""
    sink = sink_at(place.location)

    async def run(name: str) -> None:
        log = Log(story(name))
        for n in range(len(log)):
            await sink.write(log[n : n + 1])

    async with anyio.create_task_group() as group:
        for n in range(6):
            group.start_soon(run, f"run-{n}")
    await sink.close()
    log = read_log(place.location)
    assert verify(log).complete
    assert {Log(story()).head} == {tail.digest for tail in log.tails}


def test_threads_share_a_sink(place: Place) -> None:
    """Runs in several threads, as by run_sync, write one chain."""
    sink = sink_at(place.location)
    write_by_threads(sink)
    assert 4 * len(story()) == verify(read_log(place.location)).records


def test_two_processes_share_a_database(place: Place) -> None:
    """Processes that start at once on nothing, and write at once, make one chain of whole runs."""
    assert [["done"], ["done"]] == go(*(start("race", place.location, name, "4") for name in ("one", "two")))
    log = read_log(place.location)
    assert verify(log).complete
    assert {f"{name}-{n}" for name in ("one", "two") for n in range(4)} == {one.run for one in log}


async def test_another_key_does_not_continue_a_log(place: Place) -> None:
    """A chain of mixed keys could never be verified: the sink refuses before it writes, and works on."""
    kind = type(sink_at(place.location))
    log, mine = Log(story()), kind(place.location, key=KEY)
    await mine.write(log[:4])
    for key in (None, b"another"):
        sink = kind(place.location, key=key)
        with pytest.raises(LogError, match="another key") as raised:
            await sink.write(log[4:])
        assert 3 == raised.value.record
        await sink.close()
    await mine.write(log[4:])
    await mine.close()
    assert verify(read_log(place.location), key=KEY).complete


# --- what was changed


def test_each_removed_row_is_found(new_database: Callable[[], Place]) -> None:
    """A log without any one of its rows names the first record that is not where it was; the last one included."""
    log = Log(story())
    for n in range(len(log)):
        place = new_database()
        anyio.run(kept, place, log)
        place.sql(f"DELETE FROM capfold_log WHERE place = {n}")  # noqa: S608  # a number
        assert n == broken(place).record


async def test_a_log_that_lost_rows_is_not_continued(place: Place) -> None:
    """Rows that were removed at the end stay found: nothing is written after them."""
    await kept(place, Log(story()))
    place.sql("DELETE FROM capfold_log WHERE place = 9")
    sink = sink_at(place.location)
    with pytest.raises(LogError, match="rows were removed or added"):
        await sink.write(Log(story("run-2")))
    await sink.close()
    assert 9 == len(place.sql("SELECT place FROM capfold_log"))


def test_an_added_row_is_found(place: Place) -> None:
    """A row that no sink wrote, though it is a copy of one, is named."""
    anyio.run(kept, place, Log(story()))
    place.sql("INSERT INTO capfold_log SELECT 10, root, line FROM capfold_log WHERE place = 9")
    assert "seal" in str(broken(place))
    place.sql("UPDATE capfold_log SET place = 11 WHERE place = 10")
    assert "rows are missing or were added" in str(broken(place))


def test_every_flipped_byte_of_a_row_is_found(place: Place) -> None:
    """One byte of any column of any table, changed in one bit: it is found, and the record is named."""
    anyio.run(kept, place, Log(story()[:2]))
    for column in ("line", "root"):
        ((text,),) = place.sql(f"SELECT {column} FROM capfold_log WHERE place = 1")  # noqa: S608  # from above
        assert isinstance(text, str)
        for i in range(0, len(text), 7 if place.is_server else 3):
            changed = (text[:i] + chr(ord(text[i]) ^ 1) + text[i + 1 :]).replace("'", "''")
            place.sql(f"UPDATE capfold_log SET {column} = '{changed}' WHERE place = 1")  # noqa: S608  # from above
            assert 1 == broken(place).record, changed
        text = text.replace("'", "''")
        place.sql(f"UPDATE capfold_log SET {column} = '{text}' WHERE place = 1")  # noqa: S608  # from above
    for change in ("version = 3", "version = 0", "records = 3", "records = 1", "seal = 'x'", "records = -1"):
        before = place.sql("SELECT version, records, seal FROM capfold_log_head")[0]
        place.sql(f"UPDATE capfold_log_head SET {change}")  # noqa: S608  # from above
        broken(place)
        version, records, seal = before
        place.sql(f"UPDATE capfold_log_head SET version={version}, records={records}, seal='{seal}'")  # noqa: S608  # as read
    assert 2 == verify(read_log(place.location)).records


def test_every_flipped_byte_of_a_file_is_found_or_without_effect(tmp_path: Path) -> None:
    """Whatever byte of a SQLite file is changed: what is read is what was written, or a LogError."""
    path = tmp_path / "log.db"
    log = Log(story())
    anyio.run(kept, Place(str(path)), log)
    whole, expected = path.read_bytes(), list(read_log(path))
    found = 0
    for i in range(0, len(whole), 41):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x15]) + whole[i + 1 :])
        try:
            read = read_log(path)
            verify(read)
        except LogError:
            found += 1
        else:
            assert expected == list(read), i
    assert found > 10


# --- what must not be lost


@pytest.mark.parametrize("acknowledged", [1, 9])
def test_a_process_is_killed(place: Place, acknowledged: int) -> None:
    """Killed at any moment of a loop of writes: all that was acknowledged is there, and nothing by halves."""
    process = start("pairs", place.location)
    assert process.stdout is not None
    let_go(process)
    for _ in range(acknowledged):
        process.stdout.readline()
    time.sleep(0.001 * (acknowledged % 4))
    process.kill()
    rest, _ = process.communicate()
    counted = max([2 * acknowledged, *(json.loads(line) for line in rest.splitlines() if line)])
    found = verify(read_log(place.location)).records
    assert found in (counted, counted + 2)
    anyio.run(kept, place, Log(story("later")))
    assert found + len(story()) == verify(read_log(place.location)).records


def test_a_full_disk(tmp_path: Path) -> None:
    """Where the system refuses to write, the write is refused, all earlier ones are there, and later ones work."""
    path = tmp_path / "full.db"
    told = go(start("fill", str(path), str(path)))[0]
    assert 2 == len(told)
    for said in told:
        assert "the disk is full" in str(said) or "could not read or write" in str(said)
    assert 2 == verify(read_log(path)).records


@tool
def pay(amount: int) -> str:
    """Pay an amount in EUR."""
    return f"paid {amount} EUR"


def desk(*sinks: SQLiteLog | PostgresLog | JsonLines) -> Agent[str]:
    """Return an agent that pays once approved, and asks another one."""
    below = Agent("clerk", ScriptedModel(["Filed."]))
    model = ScriptedModel([[call("pay", {"amount": 10}), call("clerk", {"task": "File it."})], "Paid."])
    tools = [pay, below.as_tool("Files.", name="clerk")]
    return Agent(
        "desk",
        model,
        tools=tools,
        capabilities=[RequireApproval()],
        sinks=sinks,
        approver=lambda asked: [Approve() for _ in asked],
    )


async def test_a_locked_database_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that stays locked ends the run before its next effect, unless the sink is best-effort."""
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.05)
    path = tmp_path / "log.db"
    await kept(Place(str(path)), Log(story()))
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    sink = SQLiteLog(path)
    agent = desk(sink)
    with pytest.raises(RunError) as raised:
        await agent.run("Pay.")
    assert isinstance(raised.value.reason, SinkFailed)
    assert "locked" in raised.value.reason.message
    assert raised.value.partial is not None
    assert 0 == raised.value.partial.requests
    await sink.close()
    lenient = SQLiteLog(path, best_effort=True)
    result = await desk(lenient).run("Pay.")
    assert "completed" == result.status
    assert any("sink_failed" in record.facts for record in result.log)
    lock.close()
    await lenient.close()
    assert len(story()) == verify(read_log(path)).records


async def test_a_write_that_is_cancelled_is_whole(place: Place) -> None:
    """Cancelled while it waits for another writer, a write happens whole or not at all, and the sink goes on."""
    sink, log = sink_at(place.location), Log(story())
    await sink.write(log[:1])
    async with anyio.create_task_group() as group:
        group.start_soon(sink.write, log[1:])
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    found = len(read_log(place.location))
    assert found in (1, len(log))
    await sink.write(Log(story("later")))
    await sink.close()
    assert found + len(story()) == verify(read_log(place.location)).records


# --- whole runs


async def test_every_record_is_there_before_its_effect(place: Place) -> None:
    """A tool that looks finds, on the disk, all that was decided before it was called."""
    seen: list[str] = []

    @tool
    async def look() -> str:
        """Look."""
        seen.extend([one.kind for one in await to_thread.run_sync(read_log, place.location)])
        return "seen"

    sink = sink_at(place.location)
    result = await Agent("a", ScriptedModel([call("look"), "ok"]), tools=[look], sinks=[sink]).run("x")
    await sink.close()
    assert "tool_started" == seen[-1]
    assert seen == [one.kind for one in result.log][: len(seen)]
    assert list(result.log) == [*read_log(place.location, run=result.state.run_id)]


async def test_a_stored_run_is_replayed(place: Place) -> None:
    """A run with one below it, read by its id among others, is the run: it verifies, and replays."""
    sink = sink_at(place.location)
    agent = desk(sink)
    result = await agent.run("Pay.", run_id="one")
    await desk(sink).run("Pay.", run_id="two")
    await kept(place, Log(story("one-more")))
    await sink.close()
    log = read_log(place.location, run="one")
    assert list(result.log) == list(log)
    assert {"one", "one/call_1_1"} == {record.run for record in log}
    assert verify(log, head=result.log.head).complete
    assert "completed" == replay(log, agent).state.status
    assert "completed" == replay(read_log(place.location), agent, run="two").state.status
    with pytest.raises(LookupError, match="no record of run 'three'"):
        read_log(place.location, run="three")


async def test_a_run_of_a_file_of_lines(tmp_path: Path) -> None:
    """One run is read from a file of lines too."""
    sink = JsonLines(tmp_path / "log.jsonl")
    result = await desk(sink).run("Pay.", run_id="one")
    await desk(sink).run("Pay.", run_id="two")
    await sink.close()
    assert list(result.log) == list(read_log(sink.path, run="one"))


async def test_odd_run_ids(place: Place) -> None:
    """Ids that no database would keep as text are kept, and found."""
    names = ["a\0b", "half \ud800", "é/ü", "x" * 5000, "a/b", "a"]
    await kept(place, *(Log(story(name)) for name in names))
    assert verify(read_log(place.location)).complete
    assert len(story()) == len(read_log(place.location, run=names[0]))
    assert len(story()) == len(read_log(place.location, run=names[3]))
    assert len(story()) == len(read_log(place.location, run="a/b"))


async def test_content_and_redaction(place: Place) -> None:
    """What is kept of a record is as in a file of lines, with the same options."""
    kind = type(sink_at(place.location))
    for sink in (
        kind(place.location, content=False),
        kind(place.location, redact=lambda text: text.replace("Pay the invoice", "[redacted]")),
    ):
        await sink.write(Log(story()))
        await sink.close()
    found = read_log(place.location)
    assert "Pay the invoice" not in lines(place)
    assert ["digests"] * 10 + ["redacted"] * 10 == [record.content for record in found]
    assert verify(found).complete


# --- on the command line, and beside others


def test_on_the_command_line(tmp_path: Path) -> None:
    """`show`, `verify` and `replay` take the file of a database, and name what was changed in it."""
    place = Place(str(tmp_path / "log.db"))
    log = Log(story())
    anyio.run(kept, place, log, Log(story("run-2")))
    invoke = functools.partial(CliRunner().invoke, capfold)
    shown = invoke(["log", "show", place.location, "--run", "run-2"])
    assert 0 == shown.exit_code, shown.output
    assert "run run-2" in shown.output
    assert "run run-1" not in shown.output
    verified = invoke(["log", "verify", place.location, "--head", log.head])
    assert 0 == verified.exit_code, verified.output
    assert "20 records hold together" in verified.output
    assert 1 == invoke(["log", "show", place.location, "--run", "run-3"]).exit_code
    place.sql("DELETE FROM capfold_log WHERE place = 19")
    removed = invoke(["log", "verify", place.location])
    assert 1 == removed.exit_code
    assert "record 19: it is missing" in removed.output


async def test_beside_a_store(tmp_path: Path) -> None:
    """A store and a log in one file do not disturb each other."""
    path = tmp_path / "all.db"
    async with SQLiteStore(str(path)) as store:
        await store.append("a", [UserMessage("x")], 0)
        with pytest.raises(LogError, match="a database without a log"):
            read_log(path)
        await kept(Place(str(path)), Log(story()))
        assert 1 == len(await store.load("a"))
    assert verify(read_log(path)).complete
    assert 0 == path.stat().st_mode & 0o077


async def test_a_newer_version_is_left_alone(place: Place) -> None:
    """A database that a newer capfold made is neither read nor written."""
    await kept(place, Log(story()))
    place.sql("UPDATE capfold_log_head SET version = 2")
    sink = sink_at(place.location)
    with pytest.raises(StoreError, match="version 2, of a newer capfold"):
        await sink.write(Log(story("run-2")))
    await sink.close()
    assert "of a newer capfold" in str(broken(place))


def test_what_is_no_place(tmp_path: Path) -> None:
    """Wrong paths, URLs and options are refused when the sink is built; no password and no key is shown."""
    for path, error in (("", ValueError), (":memory:", ValueError), ("a\0b", ValueError), (3, TypeError)):
        with pytest.raises(error, match="SQLiteLog"):
            SQLiteLog(path)  # type: ignore[arg-type]  # what is refused is under test
    with pytest.raises(TypeError, match="content must be True or False"):
        SQLiteLog(tmp_path / "x", content="no")  # type: ignore[arg-type]  # as above
    with pytest.raises(TypeError, match="redact must be"):
        SQLiteLog(tmp_path / "x", redact=3)  # type: ignore[arg-type]  # as above
    assert "key" not in repr(SQLiteLog(tmp_path / "x", key=KEY))
    with pytest.raises(ValueError, match="two sinks write to"):
        Agent("a", "test", sinks=[SQLiteLog("x.db"), SQLiteLog("x.db")])
    pytest.importorskip("psycopg", reason="psycopg is missing: it is the extra `postgres`")
    with pytest.raises(ValueError, match="the URL of a PostgresLog cannot be read"):
        PostgresLog("mysql://somebody:hunter2@host/name")
    secret = PostgresLog("postgresql://somebody:hunter2@host/name")
    assert "hunter2" not in repr(secret)
    with pytest.raises(ValueError, match="two sinks write to") as raised:
        Agent("a", "test", sinks=[secret, PostgresLog("postgresql://somebody:hunter2@host/name")])
    assert "hunter2" not in str(raised.value)
