"""StoreAttachments: files are kept outside the history, which holds references to them, and shown to the model again.

Knows no store but its protocol, and no provider.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from attrs import Attribute, field, frozen

from .attached_files import (
    AttachmentError,
    Medium,
    bytes_of,
    map_media,
    media,
    reference_in,
    reference_to,
)
from .attached_model import attached_model
from .call_state import CallState
from .capability import CallNext, Capability
from .frozen import EMPTY, FrozenDict, FrozenList, Json, freeze, sha256
from .messages import Message, Part, SystemMessage, TextPart, UserMessage
from .outside import Outside
from .outside_stores import BlobStore
from .records import replace
from .shapes import at_least, of_type
from .state import RunState

MIB = 1_048_576
# In a fact, beside digest -> reference: the references that came from outside.
FOREIGN = "foreign"
_FOREIGN = "it is a reference, which the store did not give in this conversation: give the bytes, as data="


def _store(instance: object, attribute: "Attribute[BlobStore]", value: BlobStore) -> None:
    whole = all(callable(getattr(value, name, None)) for name in ("put", "get"))
    if isinstance(value, type) or not whole:
        raise TypeError(
            f"StoreAttachments.store must be a BlobStore, such as FolderBlobStore(path), not {value!r:.80}"
        )


@frozen
class StoreAttachments(Capability):
    """Keeps images, sounds and files of the input and of tool results in `store`; the history refers to them.

    A part that holds bytes, as they are or in a `data:` URL, becomes a part of the same kind whose URL is `blob:` and
    what the store gave. Each is kept under a name made of its bytes, so the same one is kept once. In the messages
    that go to the model, references are bytes again: the newest files first, until one does not fit into
    `max_inline_bytes` (of all files of a request, before base64); that one and all older ones are shown as a line of
    text. So is a file that the store has no longer. Neither the history nor a store of conversations ever holds bytes.
    `inline`: where a store gives references that are http(s) URLs, the model is shown those, unless this is True.

    More than `max_file_bytes`, base64 that is none, another URL, the path of a file, or a reference that somebody
    made up or brought from elsewhere (one that stands nowhere in the history) are not kept. In the input that
    ends the run, before anything is kept and any request; in a tool result the model reads why, in place of the part.
    A store that fails ends the run: bytes do not get into the history instead.

    List it last: a model that a later wrapper chooses would be shown references. What a log says of the input and of
    what a tool returned is written before this is called, so it holds bytes, unless its sink has `content=False`.
    Messages of earlier runs stay as they are. Raises TypeError or ValueError for a store or a number that is none.

    >>> from capfold.capabilities import ImagePart, call, tool
    >>> from capfold.runtime import Agent, MemoryBlobStore, ScriptedModel
    >>> camera = tool(lambda: ImagePart(data=b"GIF89a", media_type="image/gif"), name="camera", description="Look.")
    >>> model = ScriptedModel([call("camera"), "ok"])
    >>> agent = Agent("desk", model, tools=[camera], capabilities=[StoreAttachments(MemoryBlobStore())])
    >>> result = agent.run_sync("Look.")
    >>> result.messages[2].content[0].url[:5], model.requests[1].messages[2].content[0].data
    ('blob:', b'GIF89a')
    """

    store: BlobStore = field(validator=_store)
    max_file_bytes: int = field(
        default=20 * MIB, kw_only=True, validator=at_least(1, what="a number of bytes")
    )
    max_inline_bytes: int = field(
        default=32 * MIB, kw_only=True, validator=at_least(1, what="a number of bytes")
    )
    inline: bool = field(default=False, kw_only=True, validator=of_type(bool))

    # --- into the store

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        """Keep the files of the input; return digest -> reference. Raises ValueError for one that cannot be kept."""
        files = _Files()
        parts = [part for message in _own_input(state) for part in media(message.content)]
        foreign = _foreign(parts, state.messages[: state.history_start])
        for i, part in enumerate(parts, 1):
            try:
                if reference_in(part) in foreign:
                    raise AttachmentError(_FOREIGN)
                files.add(part, self.max_file_bytes)
            except AttachmentError as error:
                raise ValueError(
                    f"file {i} of the input ({part.media_type}) cannot be kept: {error}"
                ) from None
        return await files.kept(self.store)

    def before_run(self, state: RunState) -> RunState:
        """Put references into the input. Bytes that came in after they were kept end the run."""
        refs = _refs(state.fact(self))
        before = state.messages[: state.history_start]
        own = tuple(self._with_references(message, refs) for message in state.messages[len(before) :])
        if all(new is old for new, old in zip(own, state.messages[len(before) :], strict=True)):
            changed = state
        else:
            changed = replace(state, messages=before + own)
        left = [part for message in _own_input(changed) for part in media(message.content)]
        if any(reference_in(part) is None for part in left):
            return state.fail(f"A file came into the input after {self.key} had kept those that were there.")
        return changed

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        """Keep the files of a result; return digest -> reference, and the references that came with it."""
        files = _Files()
        parts = tuple(media(call.outcome.content if call.outcome is not None else ""))
        for part in parts:
            # What cannot be kept is no failure of the run: the after hook says so to the model.
            with suppress(AttachmentError):
                files.add(part, self.max_file_bytes)
        kept, foreign = await files.kept(self.store), _foreign(parts, call.run.messages)
        return FrozenDict({**_refs(kept), FOREIGN: freeze(sorted(foreign))}) if foreign else kept

    def after_tool_execute(self, call: CallState) -> CallState:
        """Put references into the result, and a line of text in place of what was not kept."""
        if call.outcome is None:
            return call
        refs = _refs(call.fact(self))
        brought = refs.get(FOREIGN)
        foreign = brought if isinstance(brought, FrozenList) else ()

        def change(part: Medium) -> Part:
            try:
                if reference_in(part) in foreign:
                    return _line(part, _FOREIGN)
                return _referred(part, refs, self.max_file_bytes) or _line(part, "it came in too late")
            except AttachmentError as error:
                return _line(part, f"{error}")

        return call.with_content(map_media(call.outcome.content, change))

    def _with_references(self, message: Message, refs: Mapping[str, Json]) -> Message:
        if not isinstance(message, UserMessage):
            return message

        def change(part: Medium) -> Part:
            try:
                return _referred(part, refs, self.max_file_bytes) or part
            except AttachmentError:
                return part

        content = map_media(message.content, change)
        return message if content is message.content else replace(message, content=content)

    # --- and out again

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """Show the model the files that are referred to, for this request."""
        counted = Counter(
            part
            for message in reversed(state.view)
            if not isinstance(message, SystemMessage)
            for part in reversed(tuple(media(message.content)))
            if reference_in(part) is not None
        )
        inner = state.model
        if not counted or inner is None:
            return await call_next(state)
        shown, problems = await self._shown(counted)
        for problem in problems:
            if problem not in state.notes:
                state = state.note(problem)
        model = attached_model(inner, shown)
        try:
            return await call_next(state.with_model(model))
        finally:
            model.forget()

    async def _shown(self, counted: Mapping[Medium, int]) -> tuple[dict[Medium, Part], list[str]]:
        """Return what is shown for each reference, given the newest first and how often; and what could not be."""
        shown: dict[Medium, Part] = {}
        problems: list[str] = []
        left, full = self.max_inline_bytes, False
        for part, times in counted.items():
            ref = reference_in(part) or ""
            if not self.inline and ref.startswith(("https://", "http://")):
                shown[part] = type(part)(url=ref, media_type=part.media_type)
                continue
            problem = "no room is left in the request"
            if not full:
                try:
                    data: object = await self.store.get(ref)
                except LookupError:
                    problem = "the store has it no longer"
                else:
                    if type(data) is not bytes:
                        what = f"{type(self.store).__name__}.get returned {data!r:.80} for {ref!r:.160}"
                        raise TypeError(f"{what}: a blob is bytes")
                    full = len(data) * times > left
                    if not full:
                        left -= len(data) * times
                        shown[part] = type(part)(data=data, media_type=part.media_type)
                        continue
            shown[part] = _line(part, problem)
            problems.append(f"{self.key}: {ref} was not shown: {problem}")
        return shown, problems


class _Files:
    """Files on their way into a store, each once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[bytes, str]] = {}

    def add(self, part: Medium, most: int) -> None:
        """Add what a part holds, unless it is a reference. Raises AttachmentError for what cannot be kept."""
        if reference_in(part) is None:
            data = bytes_of(part, most)
            self._found.setdefault(sha256(data), (data, part.media_type))

    async def kept(self, store: BlobStore) -> Json:
        """Put all into the store; return digest -> reference, None where there are none.

        Raises TypeError for a reference that is none.
        """
        refs: list[tuple[str, Json]] = []
        for digest, (data, media_type) in self._found.items():
            ref = await store.put(f"sha256-{digest}", data, media_type)
            if type(ref) is not str or not ref:
                raise TypeError(f"{type(store).__name__}.put returned {ref!r:.80}, which is no reference")
            refs.append((digest, ref))
        return FrozenDict(refs) if refs else None


def _foreign(parts: Iterable[Medium], history: Iterable[Message]) -> frozenset[str]:
    """Return the references in parts that stand nowhere in a history: nobody knows that the store gave them."""
    refs = frozenset(ref for part in parts if (ref := reference_in(part)) is not None)
    if not refs:  # the usual case, which reads no history
        return refs
    contents = (message.content for message in history if not isinstance(message, SystemMessage))
    return refs - {reference_in(part) for content in contents for part in media(content)}


def _own_input(state: RunState) -> tuple[UserMessage, ...]:
    own = state.messages[state.history_start :]
    return tuple(message for message in own if isinstance(message, UserMessage))


def _refs(fact: Json) -> Mapping[str, Json]:
    return fact if isinstance(fact, FrozenDict) else EMPTY


def _referred(part: Medium, refs: Mapping[str, Json], most: int) -> Medium | None:
    """Return the reference that stands for a part, or None. Raises AttachmentError for what cannot be kept."""
    if reference_in(part) is not None:
        return part
    ref = refs.get(sha256(bytes_of(part, most)))
    return reference_to(ref, part) if isinstance(ref, str) else None


def _line(part: Medium, problem: str) -> TextPart:
    return TextPart(f"[{type(part).__name__}, {part.media_type}: not shown, {problem}]")
