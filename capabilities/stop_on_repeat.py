"""StopOnRepeat: ends what goes round in circles. Knows nothing of why a model repeats itself."""

from itertools import groupby
from typing import Literal, TypeAlias, get_args

from attrs import Attribute, field, frozen

from .call_state import CallState
from .capability import Capability
from .frozen import digest, sha256
from .limit_tool_output import WHOLE
from .messages import TextPart, text_field
from .shapes import at_least
from .state import RunState
from .tools import Where, covers, names_in, where_or_none
from .verdict import Outcome

OnRepeat: TypeAlias = Literal["stop", "refuse", "ask"]
# One call as it is remembered: the step, a digest of tool and arguments, a digest of the outcome.
Seen: TypeAlias = tuple[int, str, str]
# What is compared: the calls of a step with their outcomes, whatever their order.
Unit: TypeAlias = tuple[tuple[str, str], ...]


def _choice(instance: object, attribute: "Attribute[OnRepeat]", value: OnRepeat) -> None:
    if value not in get_args(OnRepeat):
        raise ValueError(f"StopOnRepeat.on_repeat must be 'stop', 'refuse' or 'ask', not {value!r:.80}")


@frozen
class StopOnRepeat(Capability[tuple[Seen, ...]]):
    """Ends what goes round in circles: the same calls, with the same outcome, `times` times in a row in this run.

    The same is: the same tool, the same arguments as they ran (injected values apart), the same status and the same
    result; of one that `LimitToolOutput` shows in small it is the whole that counts. So a model that polls until
    something changes is left alone while things change. `longest`: how many steps the circle may have; 2, the default,
    finds A A A, and A B A B A B too. Calls side by side in one step are compared as one, whatever their order; a step
    that makes one and the same call k times counts k times.
    `tools`: which calls are looked at; None = all. Others are passed over, as if they had not been made.

    `on_repeat`: "stop" ends the run as a result with `message`, before the next request; "refuse" refuses the call
    that would go on with the circle, and the model reads `message`; "ask" has a person decide about that call.
    `{times}` in `message` is the number. Something else that happens, in step with it or not, ends the circle.

    What is remembered are digests, of at most times * longest steps.
    Raises ValueError for numbers that are too small and other choices, TypeError for what are no numbers.

    >>> from capfold.capabilities import call, tool
    >>> from capfold.runtime import Agent, ScriptedModel
    >>> look = tool(lambda: "nothing new", name="look", description="Look.")
    >>> agent = Agent("desk", ScriptedModel([call("look")] * 3), tools=[look], capabilities=[StopOnRepeat()])
    >>> agent.run_sync("Wait for the mail.").output
    'The same calls had the same outcome 3 times in a row.'
    """

    times: int = field(default=3, validator=at_least(2, "since once is no repetition"))
    longest: int = field(default=2, kw_only=True, validator=at_least(1, "the same call over and over"))
    tools: Where | None = field(default=None, kw_only=True, converter=where_or_none)
    on_repeat: OnRepeat = field(default="stop", kw_only=True, validator=_choice)
    message: str = field(
        default="The same calls had the same outcome {times} times in a row.",
        kw_only=True,
        validator=text_field,
    )

    def initial(self) -> tuple[Seen, ...]:
        """Return what was seen so far: nothing."""
        return ()

    def tool_names(self) -> frozenset[str]:
        """Return the names in `tools`."""
        return names_in(self.tools)

    def before_model_request(self, state: RunState) -> RunState:
        """Stop where the last steps were a circle."""
        if self.on_repeat != "stop" or not self._expected(state.slot(self)):
            return state
        return state.stop(self._said)

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Refuse, or have a person decide about, what would go on with the circle."""
        if self.on_repeat == "stop" or not self._covers(call):
            return call
        made = _made(call)
        if all(made != expected for expected, _ in self._expected(call.slot(self))):
            return call
        if self.on_repeat == "refuse":
            return call.refuse(self._said)
        return call.require_approval(f"{self._said} Allow {call.tool.name} once more?")

    def after_tool_execute(self, call: CallState) -> CallState:
        """Remember the call, unless what became of it is this capability's own doing."""
        if call.outcome is None or not self._covers(call) or self._own(call):
            return call
        came = digest([call.outcome.status, _content(call.outcome)])[:32]
        seen = (*call.slot(self), (call.run.run_step, _made(call), came))
        steps = sorted({step for step, _, _ in seen})[-self.times * self.longest :]
        return call.put(self, tuple(one for one in seen if one[0] >= steps[0]))

    @property
    def _said(self) -> str:
        return self.message.replace("{times}", str(self.times))

    def _covers(self, call: CallState) -> bool:
        return covers(self.tools, call.tool)

    def _own(self, call: CallState) -> bool:
        """Tell whether a call was not made for this capability's sake: the circle is as it was, and not broken."""
        if call.outcome is None or call.outcome.status != "denied":
            return False
        asked = call.outcome.by == "person" and any(ask.by == self.key for ask in call.verdict.approval)
        return asked or call.outcome.by == self.key

    def _expected(self, seen: tuple[Seen, ...]) -> Unit:
        """Return what would go on with the circle that the last steps are, nothing where they are none."""
        done = _units(seen)
        for length in range(1, self.longest + 1):
            last = done[-self.times * length :]
            if len(last) == self.times * length and all(
                a == b for a, b in zip(last, last[length:], strict=False)
            ):
                return last[0]
        return ()


def _units(seen: tuple[Seen, ...]) -> list[Unit]:
    """Return the steps as they are compared, oldest first."""
    done: list[Unit] = []
    for _, calls in groupby(seen, key=lambda one: one[0]):
        unit = tuple(sorted((made, came) for _, made, came in calls))
        done += [unit[:1]] * len(unit) if unit[0] == unit[-1] else [unit]
    return done


def _made(call: CallState) -> str:
    """Return the digest of what was called; of arguments that are no JSON the text counts."""
    text = call.asked.arguments if call.problems else None
    return digest([call.name, call.tool.digest, call.arguments, text])[:32]


def _content(outcome: Outcome) -> object:
    """Return what is compared of a result; for a text that is shown in small, the digest of the whole one."""
    whole, content = outcome.metadata.get(WHOLE), outcome.content
    if isinstance(content, str):
        return content if whole is None else [whole]
    return [
        (part.text if whole is None else whole)
        if isinstance(part, TextPart)
        else [type(part).__name__, part.media_type, part.url, sha256(part.data or b"")]
        for part in content
    ]
