"""A PostgreSQL server of the tests' own, on loopback; it ends with them.

Needs the server's binaries, on the PATH or where Debian puts them, and psycopg; where one is missing, the tests
that ask for it are skipped, and say so. PostgreSQL does not run as root: there it runs as the user `postgres`.
"""

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from attrs import field, frozen

SECONDS = 60
# Quick to start, and to checkpoint when it is stopped; what a crash leaves is as with any other server.
SETTINGS = {"listen_addresses": "127.0.0.1", "max_connections": "50", "shared_buffers": "16MB"}


@frozen
class PostgresServer:
    """A server in a folder of its own. `prefix`: what a command begins with, to run as the right user."""

    binaries: Path
    folder: Path
    port: int
    prefix: tuple[str, ...] = ()
    _numbers: Iterator[int] = field(init=False, factory=itertools.count)

    def url(self, schema: str = "public", *, login: str = "postgres") -> str:
        """Return the URL of the database, in which tables are made in a schema; `login`: user[:password]."""
        return f"postgresql://{login}@127.0.0.1:{self.port}/postgres?options=-csearch_path%3D{schema}"

    def new_url(self) -> str:
        """Return the URL of a schema that is empty."""
        import psycopg  # noqa: PLC0415  # where it is missing, other tests still run

        schema = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        return self.url(schema)

    def new_database(self) -> str:
        """Return the URL of a database of its own, which is empty."""
        import psycopg  # noqa: PLC0415  # as above

        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def make(self) -> None:
        """Make the folder's database, which trusts whoever connects."""
        self._run("initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start, and wait until the server takes connections."""
        settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._run("pg_ctl", "-D", self.data, "-l", str(self.folder / "log"), "-w", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """End the server: `fast`, or `immediate`, which is a crash and recovery at the next start."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    @property
    def runs(self) -> bool:
        """Whether the server was started, and not stopped."""
        return Path(self.data, "postmaster.pid").exists()

    @property
    def data(self) -> str:
        """The folder of the database."""
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        # Into a file: a server that goes on would hold a pipe open.
        with (self.folder / "commands").open("a+") as said:
            command = [*self.prefix, str(self.binaries / program), *arguments]
            done = subprocess.run(
                command, stdout=said, stderr=subprocess.STDOUT, timeout=SECONDS, cwd="/", check=False
            )
            said.seek(0)
            if done.returncode:
                raise RuntimeError(f"{program} failed: {said.read()}")


def _binaries() -> Path | None:
    found = shutil.which("pg_ctl")
    places = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    whole = [place for place in places if all((place / name).exists() for name in ("initdb", "postgres"))]
    return whole[-1] if whole else None


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class PostgresMissing(Exception):
    """No server can be started here; the message says what is missing."""


@contextmanager
def running() -> Iterator[PostgresServer]:
    """Run a server on a free loopback port. Raises PostgresMissing where that cannot be."""
    binaries = _binaries()
    if binaries is None:
        raise PostgresMissing("PostgreSQL's server binaries are missing: initdb, pg_ctl, postgres")
    prefix: tuple[str, ...] = ()
    # Below /tmp: pytest's own folders can be entered by their owner only, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="capfold-postgres-") as made:
        if os.geteuid() == 0:
            try:
                user = pwd.getpwnam("postgres")
            except KeyError as error:
                raise PostgresMissing(
                    "PostgreSQL does not run as root, and there is no user `postgres`"
                ) from error
            os.chown(made, user.pw_uid, user.pw_gid)
            prefix = ("runuser", "-u", "postgres", "--")
        server = PostgresServer(binaries, Path(made), _free_port(), prefix)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run one server for all tests."""
    pytest.importorskip("psycopg", reason="psycopg is missing: it is the extra `postgres`")
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except PostgresMissing as error:
            pytest.skip(str(error))
        yield server
