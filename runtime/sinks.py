"""Sinks: where records go for keeping, as they arise. `JsonLines` is a file of sealed lines.

Knows nothing of runs: records of many runs may arrive interleaved, and are sealed in order of arrival.
"""

import os
import stat
import weakref
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Protocol, cast

from ..capabilities.secret import Secret
from .audit import AuditRecord
from .errors import LogError
from .seals import Sealer, next_seal, split_line
from .sink_lines import Redact, SinkLines, check_flag

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 65_536
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)  # O_BINARY is of Windows


class Sink(Protocol):
    """Where records are written. An exception of `write` ends the run, unless `best_effort`."""

    @property
    def best_effort(self) -> bool:
        """Whether a run goes on, with a warning, when this sink fails."""

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep the records, in order; when this returns, they are out of the process.

        A run that is cancelled meanwhile waits for it, for two seconds at most.
        """

    async def close(self) -> None:
        """Release what is held open."""


def sink_list(value: object) -> tuple[Sink, ...]:
    """Return an agent's sinks. Raises TypeError for what is none, ValueError for a sink that is listed twice."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"sinks must be a list of sinks, as in [JsonLines(path)], not {type(value).__name__}")
    sinks = tuple(value)
    for i, sink in enumerate(sinks):
        if (
            isinstance(sink, type)
            or not callable(getattr(sink, "write", None))
            or not hasattr(sink, "best_effort")
        ):
            raise TypeError(f"sinks[{i}] is no sink, such as JsonLines(path): {type(sink).__name__}")
        if any(sink is other for other in sinks[:i]):
            raise ValueError(f"sinks[{i}] is listed twice: each record would be written twice")
        for where in ("path", "url"):
            place = getattr(sink, where, None)
            if place is not None and any(place == getattr(other, where, None) for other in sinks[:i]):
                raise ValueError(f"two sinks write to {str(place)!r}: the log would have each record twice")
    return cast(tuple[Sink, ...], sinks)


class JsonLines:
    """A file with one sealed JSON line for each record, opened when the first one is written.

    A file that is there already is continued. Each write is handed to the operating system before it returns,
    in the event loop's own thread: microseconds for a local file; `close` also waits for the disk. A closed
    sink opens its file again when it is written to. One object may serve many runs and threads at once; a
    second process may continue the file in turn, but not at the same moment.
    """

    def __init__(
        self,
        path: "str | Path",
        *,
        key: bytes | Secret | None = None,
        content: bool = True,
        redact: Redact | None = None,
        best_effort: bool = False,
    ) -> None:
        """Take the file's path; a new file is readable by its owner only.

        With `key` nobody without it can forge the seals. `content=False` keeps, of changes and facts, names
        and digests only; `redact`, a function or such as RedactPII(), is applied to what they hold: a function
        to every string value, RedactPII to keys and whole numbers too. Neither kind of log can be
        replayed, and each line says so; their digests remain those of the full records. A digest hides a
        text, not one of a few values that can be tried out.
        Raises LookupError when `key` is a Secret whose variable is not set.
        """
        _check_path(path)
        from pathlib import Path  # noqa: PLC0415  # with urllib below it 3 ms of the import

        self.path = Path(path)
        self.best_effort = check_flag("best_effort", best_effort)
        self._lines = SinkLines.made(key=key, content=content, redact=redact)
        self._key = self._lines.key
        self._sealer = Sealer(key=self._key)
        self._fd: int | None = None
        self._closer: weakref.finalize[[int], JsonLines] | None = None
        self._end: int | None = -1
        self._lock = Lock()

    def __repr__(self) -> str:
        """The path; never the key."""
        return f"JsonLines({str(self.path)!r})"

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Append the records.

        Raises OSError when the file cannot be opened or written, LogError when what stands in it is no log or
        ends in a torn line. A write that failed leaves no part of a line behind, where the file can be cut.
        """
        kept = [self._lines.kept(record) for record in records]
        with self._lock:
            fd = self._open()
            if (end := _size(fd)) != self._end:  # just opened, or another sink wrote to it meanwhile
                self._sealer = Sealer(_last_seal(fd, end, self._key), self._key)
                self._end = end
            seal = self._sealer.seal
            data = "".join(f"{self._sealer.line(record)}\n" for record in kept).encode()
            try:
                _write_all(fd, data)
            except OSError:
                self._sealer = Sealer(seal, self._key)
                if end is not None:
                    os.ftruncate(fd, end)
                raise
            self._end = _size(fd)

    async def close(self) -> None:
        """Wait until all is on the disk, and close the file. Raises OSError when the disk refuses it."""
        with self._lock:
            if self._fd is None or self._closer is None:
                return
            try:
                if stat.S_ISREG(os.fstat(self._fd).st_mode):
                    os.fsync(self._fd)
            finally:
                self._fd = None
                self._closer()

    def _open(self) -> int:
        if self._fd is None:
            self._fd = os.open(self.path, _FLAGS, 0o600)
            # A sink that nobody closes gives its descriptor back with itself.
            self._closer = weakref.finalize(self, os.close, self._fd)
            self._end = -1
        return self._fd


def _check_path(path: object) -> None:
    if not isinstance(path, str | os.PathLike) or path == "":
        raise TypeError(f"JsonLines takes the path of a file, not {path!r:.80}")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _size(fd: int) -> int | None:
    """Return the size of a file, None of a device or pipe, which can neither be read back nor cut."""
    found = os.fstat(fd)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _last_seal(fd: int, size: int | None, key: bytes | None) -> str:
    """Return the seal in which a file ends, "" for an empty one.

    Raises LogError when its last line is torn, no record, or sealed with another key: lines written after it
    would hide that.
    """
    if not size:
        return ""
    with os.fdopen(fd, "rb", closefd=False) as file:
        tail, start = b"", size
        while start > 0 and tail.count(b"\n") < 3:  # noqa: PLR2004  # the last two lines, and where they begin
            begin = max(0, start - _BLOCK)
            file.seek(begin)
            tail = file.read(start - begin) + tail
            start = begin
        *lines, torn = tail.split(b"\n")
        text, seal = split_line(lines[-1]) if lines and not torn else ("", "")
        before = split_line(lines[-2])[1] if len(lines) > 1 else ""
        if seal and seal == next_seal(before, text, key):
            return seal
        file.seek(0)
        number = file.read().removesuffix(b"\n").count(b"\n")
    problem = "it was changed, or sealed with another key" if seal else "it is torn, or no audit record"
    raise LogError(f"the log cannot be continued after its last line: {problem}", number)
