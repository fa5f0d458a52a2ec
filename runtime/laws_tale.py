"""Tales: whole runs as data, for real event loops: what agents there are, what is said, done and decided, what befalls.

A tale says nothing of how it is told. Chance has no part in it: which of several endings a call gets follows from its
id, so that parallel calls come to the same in any order, and a tale comes to the same each time it is told.
"""

from typing import Literal, TypeAlias

from attrs import field, frozen

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import EMPTY, FrozenDict, Json
from ..capabilities.messages import AssistantMessage, Content, Message
from ..capabilities.tools import Tool
from .limits import Limits

# What a tool's body does. "rubbish": returns what is no result; "hangs": until its time is over.
Deed: TypeAlias = Literal["returns", "waits", "fails", "crashes", "retries", "rubbish", "hangs", "unknown"]
# What a model does with a request. "rubbish": returns what is no message.
Reaction: TypeAlias = Literal["answers", "fails", "fails for good", "crashes", "rubbish", "hangs"]
# What a person does who is asked. "absent" and "malformed" leave the run suspended, to be resumed by a later choice.
Choice: TypeAlias = Literal["approves", "always", "denies", "edits", "answers"]
Asked: TypeAlias = Literal["decides", "absent", "malformed"]
# What befalls a run where it waits. "scope": the caller's own scope is cancelled. "late": it takes too long there.
Blow: TypeAlias = Literal["stop", "cancel", "scope", "late", "crash"]
Way: TypeAlias = Literal["run", "stream", "start"]

HELPER = "helper"


@frozen(kw_only=True)
class Cast:
    """One agent. `script`: what its model says in each step of a run; then, that it is over."""

    script: tuple[AssistantMessage, ...] = ()
    tools: tuple[Tool, ...] = ()
    capabilities: tuple[AnyCapability, ...] = ()
    limits: Limits = Limits()
    instructions: str = ""
    settings: FrozenDict[Json] = EMPTY


@frozen(kw_only=True)
class Tale:
    """One run, with all that befalls it.

    `helper`: a sub-agent, the tool of that name. `deeds`, `reactions`, `choices`: what bodies, models and people do,
    each chosen from by the id of the call; of each at least one. `asked`: how the person behaves each time, in turn,
    then decides. `cut`: where the run waits for the n-th time this happens, from 0. `kept`: there is a store, and the
    run is one of a conversation. `through_text`: a suspended run is resumed from its snapshot's text.
    """

    root: Cast = Cast()
    helper: Cast | None = None
    history: tuple[Message, ...] = ()
    prompt: Content = ""
    context: FrozenDict[Json] = EMPTY
    deeds: tuple[Deed, ...] = ("returns",)
    reactions: tuple[Reaction, ...] = ("answers",)
    choices: tuple[Choice, ...] = ("approves",)
    asked: tuple[Asked, ...] = ()
    cut: tuple[int, Blow] | None = None
    way: Way = "run"
    kept: bool = False
    through_text: bool = field(default=True)
