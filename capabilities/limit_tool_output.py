"""LimitToolOutput: a tool result that is too large is shown in small; with a store, it is saved whole first.

Knows no store but its protocol, and nothing of tools.
"""

import json

from attrs import Attribute, field, frozen

from .call_state import CallState
from .capability import CallNext, Capability
from .frozen import sha256
from .messages import Content, TextPart, content_text
from .outside_stores import BlobStore
from .shapes import at_least

# What is shown in place of a result needs room beside the preview: for the number, the reference, and its own marks.
ROOM = 1_024
MAX_REF = 640
MEDIA_TYPE = "text/plain; charset=utf-8"
# In the metadata of an outcome: the digest of the whole text. References differ by call, though texts are equal.
WHOLE = "whole_text_sha256"


def sent_size(text: str) -> int:
    """Return how many bytes of a request a text takes: escaped as JSON, in UTF-8, without its quotes."""
    # Half of a surrogate pair, which a model can send, has no bytes in UTF-8: it goes as an escape.
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace")) - 2


def cut(text: str, size: int) -> str:
    """Return the longest beginning of a text that takes at most `size` bytes, escaped twice: JSON in a JSON string."""
    left = size
    for i, character in enumerate(text[:size]):
        left -= sent_size(json.dumps(character, ensure_ascii=False)[1:-1])
        if left < 0:
            return text[:i]
    return text[:size]


def _store(instance: object, attribute: "Attribute[BlobStore | None]", value: BlobStore | None) -> None:
    if value is not None and (isinstance(value, type) or not callable(getattr(value, "put", None))):
        raise TypeError(
            f"LimitToolOutput.store must be a BlobStore, such as FolderBlobStore(path), or None, not {value!r:.80}"
        )


@frozen
class LimitToolOutput(Capability):
    """Shows the model the beginning of a tool result that is larger than `max_bytes`, and says how large it was.

    In place of the text stands a JSON object: `truncated`, `bytes` (of the whole text, in UTF-8), `preview` (its
    beginning, whole characters, at most `preview_bytes`) and `ref`. With a `store`, the whole text is saved first,
    under a name made of the call's id and the text, so the same result of the same call has the same name however
    often it is saved; `ref` is what the store finds it by. Without one `ref` is null, and a `note` says "not saved".

    The outcome's metadata has the SHA-256 of the whole text, as `whole_text_sha256`, for who compares results.

    Both numbers are bytes as they are sent, after JSON escaping. What is not larger stays the identical object.
    Text only is measured and shown in small: images and files among the parts stay; `StoreAttachments` is for those.
    A store that fails, or that gives a reference of more than 640 bytes, ends the run: the text is not let through.
    What did not come out of a tool's body (an answer of a capability or a person), or was made large by a later hook,
    is shown in small too, and not saved. The log keeps the whole result, unless its sink has `content=False`.

    Raises TypeError or ValueError for a wrong number or store, and for a `max_bytes` that leaves no room for the rest:
    it must be `preview_bytes` and 1,024 more.

    >>> import json
    >>> from capfold.capabilities import call, tool
    >>> from capfold.runtime import Agent, ScriptedModel
    >>> dump = tool(lambda: "é" * 9_000, name="dump", description="Dump it all.")
    >>> model = ScriptedModel([call("dump"), "ok"])
    >>> agent = Agent("desk", model, tools=[dump], capabilities=[LimitToolOutput(4_096, preview_bytes=5)])
    >>> json.loads(agent.run_sync("Dump.").messages[2].content)
    {'truncated': True, 'bytes': 18000, 'preview': 'éé', 'ref': None, 'note': 'not saved'}
    """

    declares = frozenset({"idempotent"})

    max_bytes: int = field(default=32_768, validator=at_least(0, what="a number of bytes"))
    preview_bytes: int = field(default=2_048, validator=at_least(0, what="a number of bytes"))
    store: BlobStore | None = field(default=None, validator=_store)

    def __attrs_post_init__(self) -> None:
        """Refuse a limit that what is shown in small could exceed itself."""
        if self.max_bytes < self.preview_bytes + ROOM:
            raise ValueError(
                f"LimitToolOutput.max_bytes is {self.max_bytes}; with preview_bytes={self.preview_bytes} "
                f"the least is {self.preview_bytes + ROOM}"
            )

    def idle_hooks(self) -> frozenset[str]:
        """Without a store nothing is saved, and no call need be wrapped for it."""
        return frozenset() if self.store is not None else frozenset({"wrap_tool_execute"})

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        """Save what is too large."""
        done = await call_next(call)
        if self.store is None or done.outcome is None or not self._exceeded(done.outcome.content):
            return done
        content = done.outcome.content
        data = _data(content)
        digest = sha256(data)
        ref = await self.store.put(f"{call.id}-{digest[:32]}", data, MEDIA_TYPE)
        if type(ref) is not str or not ref or sent_size(json.dumps(ref, ensure_ascii=False)) > MAX_REF:
            raise ValueError(
                f"{type(self.store).__name__}.put returned {ref!r:.80}; "
                f"a reference is a text of at most {MAX_REF} bytes"
            )
        return done.with_content(self._small(content, ref), metadata={WHOLE: digest})

    def after_tool_execute(self, call: CallState) -> CallState:
        """Let nothing through that is too large, wherever it comes from."""
        if call.outcome is None or not self._exceeded(call.outcome.content):
            return call
        content = call.outcome.content
        return call.with_content(self._small(content, None), metadata={WHOLE: sha256(_data(content))})

    def _exceeded(self, content: Content) -> bool:
        text = content_text(content)
        if len(text) * 6 <= self.max_bytes:  # no character takes more than six bytes
            return False
        return len(text) > self.max_bytes or sent_size(text) > self.max_bytes

    def _small(self, content: Content, ref: str | None) -> Content:
        """Return what stands for a content: in place of its first text, what is no text stays."""
        text = content_text(content)
        shown: dict[str, object] = {
            "truncated": True,
            "bytes": len(_data(content)),
            "preview": cut(text, self.preview_bytes),
            "ref": ref,
        }
        if ref is None:
            shown["note"] = "not saved"
        small = json.dumps(shown, ensure_ascii=False)
        if isinstance(content, str):
            return small
        first = next(i for i, part in enumerate(content) if isinstance(part, TextPart))
        return tuple(
            TextPart(small) if i == first else part
            for i, part in enumerate(content)
            if i == first or not isinstance(part, TextPart)
        )


def _data(content: Content) -> bytes:
    """Return the text of a content as bytes; half of a surrogate pair is kept as it is."""
    return content_text(content).encode("utf-8", "surrogatepass")
