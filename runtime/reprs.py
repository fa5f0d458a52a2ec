"""Text of any value at all: bounded, the same in every process, and made without an exception.

For what cannot be written as data. Knows nothing of records.
"""

import re
import reprlib

MAX_REPR = 500
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


class _Repr(reprlib.Repr):
    """Bounded; sets sorted, addresses left out: the same value has the same text in another process."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 200
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 10

    def repr_instance(self, x: object, level: int) -> str:
        """Write any other object, of which not even `repr` can be relied on."""
        try:
            text = _ADDRESS.sub("", repr(x))
        except Exception:  # noqa: BLE001  # a foreign __repr__ may raise anything
            return f"<{type(x).__name__}>"
        return text if len(text) <= self.maxother else f"{text[: self.maxother]}..."


def bounded_repr(value: object) -> str:
    """Return a `repr` of about 500 characters at most, without addresses."""
    text = _Repr().repr(value)
    return text if len(text) <= MAX_REPR else f"{text[:MAX_REPR]}..."
