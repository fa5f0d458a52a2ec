"""RequireApproval: a person decides first. Knows nothing of who asks, or how."""

import json
import re

from attrs import field, frozen

from .call_state import CallState
from .capability import Capability
from .messages import text_field
from .tools import Where, covers, names_in, where_or_none
from .verdict import Always, always_field, timeout_field

# Two placeholders and no str.format: braces in a prompt, or in arguments, are text.
_PLACEHOLDER = re.compile(r"\{(tool|arguments)\}")


@frozen
class RequireApproval(Capability):
    """Requires a person's approval before a call of `tools` runs: names, a predicate, or None for all tools.

    `prompt` is what the person reads; `{tool}` and `{arguments}` in it stand for the tool's name and for the
    arguments as JSON, which are sealed: what is shown is what runs. `denied`: what the model reads after a
    denial. `timeout` in seconds; then the run is suspended, which is no denial. `always`: how far a standing
    grant of the person may go in this run: "off" never, "arguments" for the same arguments of the same tool,
    "tool" for every call of it.

    The calls of a batch are asked about at once, and none of them runs before all decisions are in.

    >>> from capfold.runtime import Agent, Approve, ScriptedModel
    >>> @tool
    ... def pay(amount: int) -> str:
    ...     return f"paid {amount} EUR"
    >>> model = ScriptedModel([call("pay", {"amount": 10}), "Done."])
    >>> ask = RequireApproval({"pay"}, prompt="Pay {arguments}?")
    >>> result = Agent("desk", model, tools=[pay], capabilities=[ask]).run_sync("Pay 10 EUR.")
    >>> result.status, result.pending[0].prompts
    ('suspended', ('Pay {"amount": 10}?',))
    """

    tools: Where | None = field(default=None, converter=where_or_none)
    prompt: str = field(default="Allow {tool} with {arguments}?", kw_only=True, validator=text_field)
    denied: str = field(default="The user denied this tool call.", kw_only=True, validator=text_field)
    timeout: float | None = field(default=None, kw_only=True, validator=timeout_field)
    always: Always = field(default="arguments", kw_only=True, validator=always_field)

    def tool_names(self) -> frozenset[str]:
        """Return the names in `tools`."""
        return names_in(self.tools)

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Require the approval."""
        if not covers(self.tools, call.tool):
            return call
        values = {"tool": call.tool.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
        prompt = _PLACEHOLDER.sub(lambda found: values[found[1]], self.prompt)
        return call.require_approval(prompt, denied=self.denied, timeout=self.timeout, always=self.always)
