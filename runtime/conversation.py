"""A stored conversation, as the run knows it that goes on with it. Plain data: what is stored is the store's affair."""

from attrs import frozen


@frozen
class Conversation:
    """The conversation of a run. `expected`: how many messages the store had of it when the run loaded it.

    By that number the store tells whether somebody else wrote meanwhile; it counts what is stored, not what
    wrappers made of it. None: not loaded, so nothing is saved.
    """

    name: str
    expected: int | None = None
