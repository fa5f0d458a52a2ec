"""Ready-made stores for bytes: in memory, and in a folder that processes share.

A reference is made of the bytes and the name, so nothing is ever replaced: what a history refers to stays what it
was, and the same bytes under the same name are kept once. Both are configuration: a capability that holds one is
described whole. Knows nothing of what is kept.
"""

import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread
from attrs import Factory, field, frozen

from ..capabilities.frozen import sha256
from ..capabilities.outside_stores import BlobStore as BlobStore  # noqa: PLC0414  # a public name of this package
from .errors import message_of
from .stores import StoreError

T = TypeVar("T")
MAX_NAME: Final = 64
# A file of this name lies in its folder and nowhere else, on any system, and is no hidden or reserved one.
_REF: Final = re.compile(rf"([0-9a-f]{{64}})-[A-Za-z0-9_-]{{0,{MAX_NAME}}}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


def ref_of(name: str, data: bytes, media_type: str) -> str:
    """Return the reference for bytes under a name, as much of it as any file system takes.

    Raises TypeError for what is no name, no bytes or no media type.
    """
    for what, value in (("name", name), ("media type", media_type)):
        if type(value) is not str or not value:
            raise TypeError(f"a blob has a {what}, a string that is not empty, not {value!r:.80}")
    if type(data) is not bytes:
        raise TypeError(f"a blob is bytes, not {type(data).__name__}")
    return f"{sha256(data)}-{_UNSAFE.sub('_', name)[:MAX_NAME]}"


def digest_in(ref: str) -> str:
    """Return the SHA-256 that a reference holds. Raises LookupError for a text that is no reference of these stores."""
    found = _REF.fullmatch(ref) if type(ref) is str else None
    if found is None:
        raise LookupError(f"there is no blob {ref!r:.80}: a reference is what put() returned")
    return found[1]


@frozen
class MemoryBlobStore:
    """Keeps bytes in memory, for as long as it lives itself: for tests, and for runs that end with their process.

    Any number of tasks and event loops may use one. Its configuration is empty, so all compare equal; what it keeps
    is each object's own, and no media type.

    >>> import anyio
    >>> store = MemoryBlobStore()
    >>> ref = anyio.run(store.put, "notes.txt", b"12 EUR", "text/plain")
    >>> ref[64:], anyio.run(store.get, ref)
    ('-notes_txt', b'12 EUR')
    """

    _kept: dict[str, bytes] = field(init=False, eq=False, repr=False, factory=dict)

    async def put(self, name: str, data: bytes, media_type: str) -> str:
        """Keep bytes and return their reference. Raises TypeError for what cannot be kept."""
        ref = ref_of(name, data, media_type)
        self._kept.setdefault(ref, data)
        return ref

    async def get(self, ref: str) -> bytes:
        """Return the bytes behind a reference. Raises LookupError where there are none."""
        digest_in(ref)
        try:
            return self._kept[ref]
        except KeyError:
            raise _missing(ref) from None

    def refs(self) -> tuple[str, ...]:
        """Return the references of all that is kept, in the order of their arrival."""
        return tuple(self._kept)


def _path(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"FolderBlobStore takes the path of a folder, not {value!r:.80}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"FolderBlobStore takes a path that is text, not {path!r:.80}")
    if not path or "\0" in path:
        raise ValueError(f"FolderBlobStore takes the path of a folder, not {path!r:.80}")
    return path


@frozen
class FolderBlobStore:
    """Keeps bytes as files of a folder, which the first `put` makes, for its owner only; its parent must exist.

    A file is there whole, on disk, or not at all, also when the process or the machine dies; one that was changed
    since is told, and never returned. Names never lead out of the folder. Any number of tasks, event loops and
    processes may use one folder. Nothing is ever deleted from it, and no media type is kept.

    Operations raise StoreError for a folder that cannot be read or written, or a file that is damaged. Raises
    TypeError or ValueError for what is no path.
    """

    path: str = field(converter=_path)
    # The folder stays the same one when the process changes its working directory.
    _folder: Path = field(
        init=False,
        eq=False,
        repr=False,
        default=Factory(lambda self: Path(self.path).absolute(), takes_self=True),
    )

    async def put(self, name: str, data: bytes, media_type: str) -> str:
        """Keep bytes and return their reference. When this returns, they are on disk. Raises TypeError, StoreError."""
        ref = ref_of(name, data, media_type)
        await anyio.to_thread.run_sync(self._explained, lambda: _write(self._folder, ref, data))
        return ref

    async def get(self, ref: str) -> bytes:
        """Return the bytes behind a reference. Raises LookupError where there are none, StoreError."""
        digest = digest_in(ref)
        data = await anyio.to_thread.run_sync(self._explained, lambda: _read(self._folder / ref))
        if data is None:
            raise _missing(ref)
        if sha256(data) != digest:
            raise StoreError(f"{self._folder / ref} was changed since it was written, or is damaged")
        return data

    def _explained(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            problem = f"{type(error).__name__}: {message_of(error)}"
            raise StoreError(f"the blobs in {self._folder} cannot be read or written: {problem}") from error


def _missing(ref: str) -> LookupError:
    return LookupError(f"there is no blob {ref!r}: it was never put here, or is gone")


def _read(path: Path) -> bytes | None:
    """Return what a file of the folder holds; None where there is none. A link leads out of it, a pipe never ends."""
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"{path} is no plain file")
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(folder: Path, ref: str, data: bytes) -> None:
    """Write a file beside its place and move it there: a reader sees all of it or nothing."""
    target = folder / ref
    if not target.is_symlink() and target.is_file() and _read(target) == data:
        _sync(folder)  # who moved it there may not have come to that yet
        return
    if not folder.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync(folder.parent)
    number, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync(folder)


def _sync(folder: Path) -> None:
    """Have the name of a file on disk too, where folders can be opened for that."""
    if os.name != "posix":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
