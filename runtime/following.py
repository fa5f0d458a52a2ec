"""The follower: says, as a run goes on, what its consumer may know already.

A message is settled when nothing can change or withhold it any more: results and responses with calls as they
enter the history, the last response of a run when the run has ended. Reads states; decides nothing.
"""

from ..capabilities.compose import Plan
from ..capabilities.messages import AssistantMessage, Content, Message, Status, ToolMessage, UserMessage
from .events import CallSettled, CallStarted, Delta, Settled
from .phases import CallResult, Phase, RunTools
from .run_stream import RunStream
from .work import MachineState

# Before before_run is through, which may rewrite the input, nothing stands.
_INPUT = frozenset({Phase.OPENING, Phase.ENTERING, Phase.STARTING})
# In these a response at the end of the history has open calls: it stands, whatever comes.
_OPEN = frozenset({Phase.ADMITTING, Phase.APPROVING, Phase.SUSPENDED, Phase.EXECUTING, Phase.SETTLING})


class Follower:
    """What one consumer has been told of one run.

    `live`: deltas may be given as they come; not so with a capability that has `hold_stream`, whose after hooks
    come first.
    """

    def __init__(self, events: "RunStream[object]", plan: Plan, prompt: Content | None) -> None:
        """Start before the first message. The consumer gave the prompt itself, and is told what became of it only."""
        self.live = not any(member.hold_stream for member in plan.members.values())
        self._events = events
        self._said: list[str] = []
        self._source: object = None  # the request that said it
        self._prompt = None if prompt is None else UserMessage(prompt)
        self._seen = 0
        self._step = 0
        self._started: dict[str, CallStarted] = {}  # by call id, those that have no outcome yet

    def delta(self, text: str, source: object = None) -> None:
        """Give a piece of the response under way; `source`: the request that it comes from."""
        if text:
            self._source = source
            self._said.append(text)
            self._events.put(Delta(text, self._step))

    @property
    def published(self) -> bool:
        """Whether deltas of the response under way were given, so that it cannot be asked for again."""
        return bool(self._said)

    def published_by_another(self, source: object) -> bool:
        """Tell whether deltas were given, and not of this request: then it is not the response under way."""
        return self.published and self._source is not source

    @property
    def said(self) -> str:
        """What was given of the response under way."""
        return "".join(self._said)

    def hurry(self) -> None:
        """Wait for the consumer no longer: the run is being closed, and a consumer may be late to leave."""
        self._events.release()

    async def follow(self, state: MachineState) -> None:
        """Tell what is settled now, and let the consumer catch up."""
        if state.phase in _INPUT:
            return
        messages = state.run.messages
        seen, ready = max(self._seen, state.run.history_start), len(messages)
        if state.phase is not Phase.ENDED and state.phase not in _OPEN and seen < ready:
            ready -= isinstance(messages[-1], AssistantMessage)
        for message in messages[seen:ready]:
            if isinstance(message, AssistantMessage):
                if not self.published:  # made up by a hook, held back, or of a model that does not stream
                    self.delta(message.text)
                self._said.clear()
            elif isinstance(message, ToolMessage):
                self._settled(message.call_id, message.status)  # of a call that was cut short
            if not self._is_prompt(message):
                self._events.put(Settled(message))
        self._seen = max(seen, ready)
        if state.phase is Phase.REQUESTING:
            self._said.clear()
            self._step = state.run.run_step
        await self._events.caught_up()

    async def started(self, effect: RunTools) -> None:
        """Tell which calls are handed to the port."""
        for call in effect.calls:
            event = CallStarted(call.asked.id, call.asked.name, effect.run.run_step)
            self._started[event.call_id] = event
            self._events.put(event)
        await self._events.caught_up()

    async def finished(self, result: CallResult) -> None:
        """Tell that a call has its outcome; one whose sub-agent waits for a decision has none yet."""
        outcome = result.call.outcome
        if outcome is not None and result.held is None:
            self._settled(result.call.asked.id, outcome.status)
            await self._events.caught_up()

    def _is_prompt(self, message: Message) -> bool:
        if self._prompt is None or message != self._prompt:
            return False
        self._prompt = None  # once
        return True

    def _settled(self, call_id: str, status: Status) -> None:
        started = self._started.pop(call_id, None)
        if started is not None:
            self._events.put(CallSettled(call_id, started.tool, status, started.step))
