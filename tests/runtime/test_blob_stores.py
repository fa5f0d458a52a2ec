"""MemoryBlobStore and FolderBlobStore: what was put is found, whole, by its reference and by nothing else."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import capfold.capabilities
from capfold.capabilities.description import as_json
from capfold.runtime import BlobStore, FolderBlobStore, MemoryBlobStore
from capfold.runtime.blob_stores import digest_in, ref_of
from capfold.runtime.stores import StoreError

Make = Callable[[Path], BlobStore]
both = pytest.mark.parametrize(
    "make", [lambda _: MemoryBlobStore(), lambda path: FolderBlobStore(path / "blobs")]
)
TEXT = "text/plain"


def files_in(folder: Path) -> list[Path]:
    """Return what a folder holds."""
    return list(folder.iterdir())


@both
async def test_what_was_put_is_found(make: Make, tmp_path: Path) -> None:
    """Bytes come back as they are, empty ones too; the same under one name are one."""
    store = make(tmp_path)
    for data in (b"", b"text", bytes(range(256)) * 1_000):
        ref = await store.put("name", data, TEXT)
        assert data == await store.get(ref)
        assert ref == await store.put("name", data, "image/png")


@both
async def test_nothing_is_replaced(make: Make, tmp_path: Path) -> None:
    """Other bytes under the same name have another reference, and both stay."""
    store = make(tmp_path)
    one, two = await store.put("name", b"one", TEXT), await store.put("name", b"two", TEXT)
    assert (b"one", b"two") == (await store.get(one), await store.get(two))


@both
@pytest.mark.parametrize(
    "ref",
    [
        "",
        "name",
        "../secret",
        "/etc/passwd",
        "a" * 64,
        "a" * 64 + "-../x",
        "A" * 64 + "-x",
        "a" * 64 + "-x\n",
        "\0",
    ],
)
async def test_any_other_reference_is_none(make: Make, tmp_path: Path, ref: str) -> None:
    """What put() never returned is a LookupError, and no path."""
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(LookupError, match="no blob"):
        await make(tmp_path).get(ref)


@both
async def test_what_is_not_there(make: Make, tmp_path: Path) -> None:
    """A reference of another store is a LookupError too."""
    ref = await MemoryBlobStore().put("name", b"data", TEXT)
    with pytest.raises(LookupError, match="never put here, or is gone"):
        await make(tmp_path).get(ref)


@both
@pytest.mark.parametrize(
    ("name", "data", "media_type", "why"),
    [
        ("", b"", TEXT, "a name"),
        (3, b"", TEXT, "a name"),
        ("a", "text", TEXT, "is bytes, not str"),
        ("a", bytearray(), TEXT, "is bytes, not bytearray"),
        ("a", b"", "", "a media type"),
    ],
)
async def test_what_cannot_be_put(  # noqa: PLR0917  # the values under test
    make: Make, tmp_path: Path, name: str, data: bytes, media_type: str, why: str
) -> None:
    """What is no name, no bytes or no type is a TypeError that says what it was."""
    with pytest.raises(TypeError, match=why):
        await make(tmp_path).put(name, data, media_type)


@given(st.text(min_size=1), st.binary(max_size=20))
def test_any_name_is_a_safe_one(name: str, data: bytes) -> None:
    """Whatever a name holds, the reference is a plain file name that leads back to the digest."""
    ref = ref_of(name, data, TEXT)
    assert digest_in(ref) == digest_in(ref_of("other", data, TEXT))
    assert Path(ref).name == ref
    assert len(ref) <= 129
    assert ref.isascii()


async def test_files_are_whole_and_private(tmp_path: Path) -> None:
    """A folder holds one file per reference and nothing else, for its owner only, in a folder of its own."""
    store = FolderBlobStore(tmp_path / "blobs")
    assert not (tmp_path / "blobs").exists()
    ref = await store.put("../../x/call 1", b"data", TEXT)
    (file,) = files_in(tmp_path / "blobs")
    assert ref == file.name
    assert [file.parent] == files_in(tmp_path)
    if os.name == "posix":
        assert 0o600 == stat.S_IMODE(file.stat().st_mode)
        assert 0o700 == stat.S_IMODE(file.parent.stat().st_mode)


async def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a StoreError, no part of the file is there, and the next write succeeds."""
    store = FolderBlobStore(tmp_path)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            await store.put("name", b"data", TEXT)
        assert [] == files_in(tmp_path)
    assert b"data" == await store.get(await store.put("name", b"data", TEXT))


async def test_a_changed_file_is_told(tmp_path: Path) -> None:
    """Bytes that are not what was put are never returned; putting them again heals the file."""
    store = FolderBlobStore(tmp_path)
    ref = await store.put("name", b"data", TEXT)
    (tmp_path / ref).write_bytes(b"dat")
    with pytest.raises(StoreError, match="changed since it was written"):
        await store.get(ref)
    assert ref == await store.put("name", b"data", TEXT)
    assert b"data" == await store.get(ref)


@pytest.mark.skipif(os.name != "posix", reason="links and pipes as POSIX has them")
async def test_what_is_no_file_of_the_folder(tmp_path: Path) -> None:
    """A link in the place of a file leads out of the folder, a pipe never ends: not read, and replaced by `put`."""
    store, folder, outside = FolderBlobStore(tmp_path / "blobs"), tmp_path / "blobs", tmp_path / "outside"
    ref = await store.put("name", b"data", TEXT)
    outside.write_bytes(b"data")
    places: list[Callable[[], None]] = [
        lambda: (folder / ref).symlink_to(outside),
        lambda: (folder / ref).symlink_to(tmp_path / "nowhere"),
        lambda: os.mkfifo(folder / ref),
    ]
    for place in places:
        (folder / ref).unlink()
        place()
        with pytest.raises(StoreError, match="no plain file"):
            await store.get(ref)
        assert ref == await store.put("name", b"data", TEXT)
        assert stat.S_ISREG((folder / ref).lstat().st_mode)
        assert (b"data", b"data") == (await store.get(ref), outside.read_bytes())
    (folder / ref).unlink()
    (folder / ref).mkdir()
    with pytest.raises(StoreError, match="no plain file"):
        await store.get(ref)
    with pytest.raises(StoreError, match="cannot be read or written"):
        await store.put("name", b"data", TEXT)
    assert [folder / ref] == files_in(folder)


@pytest.mark.skipif(os.name != "posix", reason="folders are synced where they can be opened")
async def test_what_is_there_is_on_disk_when_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where somebody else has put it, who may not have come to that; and the name of a new folder too."""
    synced: list[int] = []
    fsync = os.fsync

    def counted(number: int) -> None:
        synced.append(os.fstat(number).st_ino)
        fsync(number)

    monkeypatch.setattr(os, "fsync", counted)
    store = FolderBlobStore(tmp_path / "blobs")
    ref = await store.put("name", b"data", TEXT)
    file, folder, parent = ((tmp_path / path).stat().st_ino for path in (f"blobs/{ref}", "blobs", "."))
    assert {file, folder, parent} == set(synced)
    synced.clear()
    await store.put("name", b"data", TEXT)
    assert [folder] == synced


async def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    """A file in its place, or no parent, is a StoreError of both operations that need it."""
    (tmp_path / "file").write_text("x")
    ref = await MemoryBlobStore().put("name", b"data", TEXT)
    for store in (FolderBlobStore(tmp_path / "file"), FolderBlobStore(tmp_path / "no" / "parent")):
        with pytest.raises(StoreError, match="cannot be read or written"):
            await store.put("name", b"data", TEXT)
    with pytest.raises(StoreError, match="cannot be read or written"):
        await FolderBlobStore(tmp_path / "file").get(ref)


async def test_many_at_once(tmp_path: Path) -> None:
    """Twenty writers of the same and of other bytes, in two objects on one folder: all is there, nothing else."""
    stores = [FolderBlobStore(tmp_path), FolderBlobStore(tmp_path)]
    refs: set[str] = set()

    async def put(i: int) -> None:
        refs.add(await stores[i % 2].put("name", b"%d" % (i % 5), TEXT))

    async with anyio.create_task_group() as group:
        for i in range(20):
            group.start_soon(put, i)
    assert refs == {file.name for file in files_in(tmp_path)}
    assert {b"%d" % i for i in range(5)} == {await stores[0].get(ref) for ref in refs}


async def test_the_folder_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is what it was when the store was made."""
    monkeypatch.chdir(tmp_path)
    store = FolderBlobStore("blobs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ref = await store.put("name", b"data", TEXT)
    assert (tmp_path / "blobs" / ref).exists()


def test_they_are_configuration(tmp_path: Path) -> None:
    """Both are described whole, hashable, equal by their configuration, and say nothing of what they keep."""
    for one, other in (
        (MemoryBlobStore(), MemoryBlobStore()),
        (FolderBlobStore("a"), FolderBlobStore(Path("a"))),
    ):
        assert as_json(one)[1]
        assert one == other
        assert hash(one) == hash(other)
    assert FolderBlobStore("a") != FolderBlobStore("b")
    assert "MemoryBlobStore()" == repr(MemoryBlobStore())
    assert BlobStore is capfold.capabilities.BlobStore


@pytest.mark.parametrize(
    ("path", "error"), [(3, TypeError), (b"blobs", TypeError), ("", ValueError), ("a\0b", ValueError)]
)
def test_what_is_no_path(path: object, error: type[Exception]) -> None:
    """It is refused when the store is made."""
    with pytest.raises(error, match="FolderBlobStore takes"):
        FolderBlobStore(path)
