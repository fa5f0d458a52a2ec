"""RefuseTools: some tools are not for this run. Knows nothing of permissions, which are the runtime's."""

from attrs import Attribute, field, frozen

from .call_state import CallState
from .capability import Capability
from .messages import text_field
from .tools import Where, accepts, as_where, is_destructive


def _unless(instance: object, attribute: "Attribute[str | None]", value: str | None) -> None:
    if value is not None and (type(value) is not str or not value):
        raise ValueError(f"RefuseTools.unless must be a key of the run's context, or None, not {value!r}")


@frozen
class RefuseTools(Capability):
    """Refuses calls of the tools that `where`, names or a predicate, accepts; the model reads `reason`.

    `unless`: a key of the run's context, which comes from authenticated application state; where its value is
    True (a text or a number that counts as true is not), nothing is refused. The default predicate is the
    careful one: a tool that declares nothing counts as destructive.

    A refusal wins over every approval and answer, so nobody is asked about a call that cannot run.

    >>> from capfold.runtime import Agent, ScriptedModel
    >>> @tool
    ... def delete_user(name: str) -> str:
    ...     return f"{name} is gone"
    >>> model = ScriptedModel([call("delete_user", {"name": "ada"}), "I may not."])
    >>> rule = RefuseTools({"delete_user"}, unless="is_admin", reason="Deleting users is not for agents.")
    >>> result = Agent("desk", model, tools=[delete_user], capabilities=[rule]).run_sync("Delete ada.")
    >>> result.messages[2].status, result.messages[2].content
    ('denied', 'Deleting users is not for agents.')
    """

    where: Where = field(default=is_destructive, converter=as_where)
    unless: str | None = field(default=None, kw_only=True, validator=_unless)
    reason: str = field(
        default="This operation is not permitted for this run.", kw_only=True, validator=text_field
    )

    def tool_names(self) -> frozenset[str]:
        """Return the names in `where`."""
        return frozenset() if callable(self.where) else frozenset(self.where)

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Refuse what is not permitted."""
        permitted = self.unless is not None and call.run.context.get(self.unless) is True
        if permitted or not accepts(self.where, call.tool):
            return call
        return call.refuse(self.reason)
