"""What is PostgreSQL's own: servers that die and come back, roles with few rights, and URLs that hold secrets."""

import sys
from collections.abc import Iterator

import anyio
import psycopg
import pytest
from anyio import to_thread

from capfold.capabilities.messages import UserMessage
from capfold.capabilities.secret import Secret
from capfold.runtime.postgres_store import PostgresStore
from capfold.runtime.stores import StoreError
from tests.postgres import PostgresServer
from tests.runtime.store_places import postgres_server, snapshot

__all__ = ["postgres_server"]


@pytest.fixture
def server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """Return the server, for a test that may stop it; it is started again."""
    yield postgres_server
    if not postgres_server.runs:
        postgres_server.start()


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """Return the URL of an empty schema."""
    return postgres_server.new_url()


def chain(error: BaseException | None) -> str:
    """Return what an error and all that led to it say."""
    return "" if error is None else f"{error!r} {error} {chain(error.__cause__)} {chain(error.__context__)}"


async def append_at_once(store: PostgresStore, number: int) -> None:
    """Append to as many conversations at the same time, so that several connections are open."""
    async with anyio.create_task_group() as group:
        for n in range(number):
            group.start_soon(store.append, f"at once {n}", [UserMessage("x")], 0)


@pytest.mark.parametrize("mode", ["immediate", "fast"])
async def test_a_server_that_was_restarted(server: PostgresServer, mode: str) -> None:
    """After a crash or a restart of the server the same store goes on; what was acknowledged is there."""
    async with PostgresStore(server.new_url()) as store:
        await append_at_once(store, 8)
        await store.append("a", [UserMessage("0")], 0)
        await store.hold("run", snapshot("one"))
        await to_thread.run_sync(server.stop, mode)
        await to_thread.run_sync(server.start)
        await store.append("a", [UserMessage("1")], 1)
        assert snapshot("one") == await store.claim("run")
        assert [UserMessage("0"), UserMessage("1")] == list(await store.load("a"))
        for n in range(8):
            assert 1 == len(await store.load(f"at once {n}"))


async def test_a_server_that_dies_meanwhile(server: PostgresServer) -> None:
    """Killed in a loop of appends, the server has all that was acknowledged, and at most the one that was not."""
    acknowledged = 0
    failed: list[StoreError] = []
    under_way = anyio.Event()

    async def write(store: PostgresStore) -> None:
        nonlocal acknowledged
        try:
            while True:
                await store.append("a", [UserMessage(f"{acknowledged}")], acknowledged)
                acknowledged += 1
                if acknowledged == 20:
                    under_way.set()
        except StoreError as error:
            failed.append(error)

    async with PostgresStore(server.new_url()) as store:
        async with anyio.create_task_group() as group:
            group.start_soon(write, store)
            await under_way.wait()
            await to_thread.run_sync(server.stop, "immediate")
        with pytest.raises(StoreError, match="PostgreSQL: connection failed"):
            await store.load("a")
        await to_thread.run_sync(server.start)
        found = [message.content for message in await store.load("a")]
        assert [str(n) for n in range(len(found))] == found
        assert len(found) - acknowledged in (0, 1)
        assert 1 == len(failed)
        await store.append("a", [UserMessage("on")], len(found))


async def test_an_append_that_waits_is_cancelled(url: str) -> None:
    """Cancelled while it waits for another writer, an append ends whole, and the store goes on."""
    async with PostgresStore(url) as store:
        await store.append("a", [UserMessage("0")], 0)
        with psycopg.connect(url) as other:
            row = "'a', 1, 1, 'digest', 'message'"
            other.execute(f"INSERT INTO capfold_messages VALUES ({row})".encode())  # noqa: S608  # written above
            async with anyio.create_task_group() as group:
                group.start_soon(store.append, "a", [UserMessage("1"), UserMessage("2")], 1)
                await anyio.sleep(0.05)
                group.cancel_scope.cancel()
                other.rollback()
        found = len(await store.load("a"))
        assert found in (1, 3)
        await store.append("a", [UserMessage("3")], found)


async def test_a_role_that_makes_no_tables(postgres_server: PostgresServer, url: str) -> None:
    """A role that may only read and write rows uses tables that are there; without them it is told why not."""
    async with PostgresStore(url) as store:
        await store.append("a", [UserMessage("0")], 0)
    schema = url.rpartition("%3D")[2]
    role = f"role_{schema}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN".encode())
        owner.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}".encode())
        owner.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {role}".encode())
    async with PostgresStore(postgres_server.url(schema, login=role)) as store:
        await store.append("a", [UserMessage("1")], 1)
        await store.hold("run", snapshot("one"))
        assert snapshot("one") == await store.claim("run")
    empty = postgres_server.new_url().rpartition("%3D")[2]
    async with PostgresStore(postgres_server.url(empty, login=role)) as store:
        with pytest.raises(StoreError, match=r"PostgreSQL: (permission denied|no schema)"):
            await store.load("a")


async def test_a_url_in_a_secret(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is read when a connection is opened: a missing one is named then, a new one is used."""
    monkeypatch.delenv("STORE_URL", raising=False)
    async with PostgresStore(Secret.env("STORE_URL")) as store:
        with pytest.raises(LookupError, match="the environment variable STORE_URL is not set"):
            await store.load("a")
        monkeypatch.setenv("STORE_URL", "mysql://somebody:hunter2@host/name")
        with pytest.raises(ValueError, match="the URL of a PostgresStore cannot be read") as caught:
            await store.load("a")
        assert "hunter2" not in chain(caught.value)
        monkeypatch.setenv("STORE_URL", url)
        await store.append("a", [UserMessage("0")], 0)


async def test_a_password_is_not_shown(postgres_server: PostgresServer) -> None:
    """A URL with a password works, and the password is in no repr and no error; so too in the `key=value` form."""
    user = f"host=127.0.0.1 port={postgres_server.port} user=postgres dbname=postgres"
    for url in (postgres_server.url(login="postgres:hunter2"), f"{user} password=hunter2"):
        async with PostgresStore(url) as store:
            assert () == await store.pending()
            assert "hunter2" not in repr(store)
            assert store == PostgresStore(url)
            assert hash(store) == hash(PostgresStore(url))
        nowhere = url.replace("dbname=postgres", "dbname=nowhere").replace("/postgres?", "/nowhere?")
        async with PostgresStore(nowhere) as store:
            with pytest.raises(StoreError, match='database "nowhere" does not exist') as caught:
                await store.pending()
            assert "hunter2" not in chain(caught.value)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("mysql://somebody:hunter2@host/name", ValueError),
        ("postgresql://somebody:hunter 2@host", ValueError),
        ("somebody:hunter2", ValueError),
        ("postgresql://\ud800:hunter2@host", ValueError),
        ("", TypeError),
        (None, TypeError),
        (b"postgresql://somebody:hunter2@host", TypeError),
    ],
)
def test_no_url(url: str, error: type[Exception]) -> None:
    """What is no URL is refused at once, and not shown: somebody mistyped one with a password."""
    with pytest.raises(error, match="PostgresStore") as caught:
        PostgresStore(url)
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the extra is named when the store is built, not when the first run has ended."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install 'capfold\[postgres\]'"):
        PostgresStore(Secret.env("STORE_URL"))
