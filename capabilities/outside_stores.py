"""What ready-made capabilities keep outside of a run: caches, blobs, and counters over many runs.

Protocols only; ready-made ones are the runtime's, and anybody's own will do.
"""

from typing import Protocol


class CacheStore(Protocol):
    """Keeps texts for a while, for who asks the same again."""

    async def get(self, key: str) -> str | None:
        """Return what is kept under a key; None where there is nothing, or nothing any more."""

    async def set(self, key: str, value: str, ttl: float | None) -> None:
        """Keep a text under a key for `ttl` seconds, or for good with None; it replaces what was there."""


class BlobStore(Protocol):
    """Keeps bytes that are too large for a history, which holds a reference to them."""

    async def put(self, name: str, data: bytes, media_type: str) -> str:
        """Keep bytes under a name and return the reference they are found by; a history holds it for ever.

        The same bytes under the same name have the same reference; other bytes leave what it refers to as it is.
        """

    async def get(self, ref: str) -> bytes:
        """Return the bytes behind a reference. Raises LookupError where there are none."""


class Reserving(Protocol):
    """Counts units of something over many runs, as `capfold.runtime.Counter` does."""

    async def reserve(self, name: str, n: int, limit: int) -> bool:
        """Take n units of a name, all or none, unless that makes more than `limit`; return whether they were taken."""
