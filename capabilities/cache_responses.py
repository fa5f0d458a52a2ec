"""CacheResponses: a request that was answered before is not sent again. Knows neither stores nor the wire."""

from typing import Final

from attrs import Attribute, field, frozen

from .capability import CallNext, Capability
from .messages import AssistantMessage
from .outside_stores import CacheStore
from .reply_text import ReplyTextError, from_text, to_text
from .request_key import request_key
from .state import RunState
from .verdict import timeout_field

# A reply that broke off, was filtered or refused is no answer to give again.
_WHOLE: Final = frozenset({"stop", "tool_calls"})
_DIGITS: Final = 12  # of a key, in a note


def _store(instance: object, attribute: "Attribute[CacheStore]", value: CacheStore) -> None:
    if isinstance(value, type) or not all(callable(getattr(value, name, None)) for name in ("get", "set")):
        raise TypeError(
            "CacheResponses.store needs async get(key) and set(key, value, ttl), as MemoryCacheStore() and "
            f"SQLiteCacheStore(path) have, not {type(value).__name__}"
        )


def _vary(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, tuple | list | set | frozenset):
        raise TypeError(
            f"CacheResponses.vary takes keys of the run's context, as in ('tenant',), not {value!r:.80}"
        )
    for key in value:
        if type(key) is not str or not key:
            raise TypeError(f"CacheResponses.vary must hold keys of the run's context, not {key!r:.80}")
    return tuple(sorted(set(value)))


@frozen
class CacheResponses(Capability):
    """Answers a request from `store` where the same one was answered before; the model is not asked.

    The same request: model, settings, instructions, tools, output type and shown messages are equal, and so is
    what the run's context has under the keys `vary`. A model is told by its name and what can be described of it
    (and its `api_url`, where it says one). Replies say what the prompt said, so where users or tenants must not
    share them, name what tells those apart: `vary=("tenant",)`. A context without that key ends the run.

    `ttl`: how long a reply may be used, in seconds; None = as long as the store keeps it.

    A reply from the store costs nothing: no request is charged and its usage is 0. It is marked by
    `metadata["cached"]`, its calls get ids of their own and their tools run; a stream shows its text as one delta.
    Kept are whole replies that say or call something: no error, and none that was cut off, filtered, refused or
    incomplete. What is kept is text, so runs share no object. A text that cannot be read, of another version, of
    another request or damaged, counts as none: a note says so, and the new reply takes its place.

    List it last, so that what other wrappers change is part of the request, and what they make up in place of a
    reply is not kept. Two equal requests at once are both sent. A store that fails ends the run, with a
    HookError that names this capability.

    Raises TypeError and ValueError for what is no store, no number of seconds or no keys.

    >>> from capfold.runtime import Agent, MemoryCacheStore, ScriptedModel
    >>> cache = CacheResponses(MemoryCacheStore(), ttl=3600, vary=("tenant",))
    >>> agent = Agent("desk", ScriptedModel(["Paris."]), capabilities=[cache])
    >>> runs = [agent.run_sync("Capital of France?", context={"tenant": "a"}) for _ in range(2)]
    >>> [(run.output, run.requests) for run in runs]
    [('Paris.', 1), ('Paris.', 0)]
    """

    store: CacheStore = field(validator=_store)
    ttl: float | None = field(default=None, kw_only=True, validator=timeout_field)
    vary: tuple[str, ...] = field(default=(), kw_only=True, converter=_vary)

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """Look the request up; send it where there is no reply, and keep what comes."""
        key = request_key(state, self.vary)
        kept = await self.store.get(key)
        if kept is not None:
            try:
                return state.respond(from_text(kept, key))
            except ReplyTextError as problem:
                state = state.note(
                    f"{self.key} asks the model: what is kept under {key[:_DIGITS]} is no use: {problem}"
                )
        done = await call_next(state)
        reply = done.response
        # The one of before is none of this request's: an inner wrapper that only stopped the run left it there.
        if reply is not None and reply is not state.response and _is_whole(done, reply):
            await self.store.set(key, to_text(reply, key), self.ttl)
        return done


def _is_whole(done: RunState, reply: AssistantMessage) -> bool:
    if done.stopped is not None or done.failed is not None or reply.finish_reason not in _WHOLE:
        return False
    return bool(reply.content or reply.tool_calls)
