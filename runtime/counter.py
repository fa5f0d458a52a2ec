"""Counter: units that many runs of one process share, each taken once. Knows nothing of who takes them."""

from threading import Lock

from attrs import field, frozen


def check_reservation(name: str, n: int, limit: int) -> None:
    """Raise TypeError or ValueError for what cannot be reserved."""
    if type(name) is not str or not name:
        raise TypeError(f"a counter counts under a name, a non-empty string, not {name!r:.80}")
    try:
        name.encode()
    except UnicodeEncodeError:  # which no file could hold, so neither does memory
        raise ValueError(f"a counter's name holds half of a surrogate pair: {name!r:.80}") from None
    for what, value, least in (("n", n, 1), ("limit", limit, 0)):
        if type(value) is not int:
            raise TypeError(f"reserve takes an integer as {what}, not {value!r:.80}")
        if value < least:
            raise ValueError(f"reserve takes {what} of at least {least}, not {value}")


@frozen(eq=False)
class Counter:
    """Counts in memory, for this process; another object is another counter.

    Any number of tasks, event loops and threads may use one: a reservation is one step, with nothing in between.

    >>> import anyio
    >>> counter = Counter()
    >>> [anyio.run(counter.reserve, "web", 2, 5) for _ in range(3)], counter.used("web")
    ([True, True, False], 4)
    """

    _lock: Lock = field(init=False, repr=False, factory=Lock)
    _used: dict[str, int] = field(init=False, repr=False, factory=dict)

    async def reserve(self, name: str, n: int, limit: int) -> bool:
        """Take `n` units of a name, all or none, unless that makes more than `limit`; return whether they were taken.

        Raises TypeError or ValueError for a name, a number or a limit that is none.
        """
        check_reservation(name, n, limit)
        with self._lock:
            used = self._used.get(name, 0)
            if used + n > limit:
                return False
            self._used[name] = used + n
            return True

    def used(self, name: str) -> int:
        """Return how many units of a name are taken."""
        return self._used.get(name, 0)
