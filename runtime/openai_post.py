"""One POST by the openai client: its bytes out, the bytes of a whole response in, and how long that may take.

The same for every API. Bytes go as they are: the client's typed methods would walk the history, at 100 us a message.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anyio import current_time, move_on_after
from attrs import field, frozen

from .openai_failures import failures, timed_out

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@frozen(eq=False)
class Post:
    """What is sent, whereto, by which client. `timeout`: seconds for all of it, None = no bound."""

    client: "AsyncOpenAI" = field(repr=False)
    path: str
    body: bytes
    timeout: float | None


class Patience:
    """How long the answer to one POST may be waited for: in all, in any number of waits."""

    def __init__(self, timeout: float | None) -> None:
        """Start with `timeout` seconds; None = no bound."""
        self._timeout = timeout
        self._left = timeout

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait inside. Raises ModelError for no answer in time, and for what the openai package raises.

        The client's own timeout bounds the wait for the next byte only; this one a server that trickles, too.
        """
        began = current_time()
        with move_on_after(self._left):
            with failures(self._timeout):
                yield
            if self._left is not None:
                self._left = max(0.0, self._left - (current_time() - began))
            return
        raise timed_out(self._timeout)


async def whole_response(post: Post) -> bytes:
    """Send it and return the body of the response. Raises ModelError."""
    with Patience(post.timeout).waiting():
        return await post.client.post(
            post.path, content=post.body, cast_to=bytes, options={"timeout": post.timeout}
        )
