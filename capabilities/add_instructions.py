"""Instructions: a paragraph for the model, as a member of the list. Knows nothing of messages.

The class is `Instructions`; the module is named after what it does.
"""

from typing import ClassVar

from attrs import Attribute, field, frozen

from .capability import Capability, Declaration
from .messages import text_field
from .state import RunState


def _paragraph(instance: object, attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    if not value.strip():
        raise ValueError("Instructions.text is blank: write a sentence, or leave the capability out")


@frozen
class Instructions(Capability):
    r"""Adds `text` to the instructions of every request: after the agent's own, in list order.

    A text that stands there already, as a paragraph, is not sent twice: two bundles may bring the same one
    along, under keys of their own. Instructions are no message, so no trimming takes them away.

    Raises TypeError for what is no string, ValueError for a blank one.

    >>> from capfold.capabilities import RunState, fold
    >>> listed = [Instructions("Be brief."), Instructions("Be brief.", key="b"), Instructions("Be kind.", key="c")]
    >>> fold(listed, "before_model_request", RunState(instructions="You keep the ledger.")).instructions
    'You keep the ledger.\n\nBe brief.\n\nBe kind.'
    """

    text: str = field(validator=_paragraph)

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent"})

    def before_model_request(self, state: RunState) -> RunState:
        """Add the paragraph, unless it is there."""
        there = f"\n\n{self.text}\n\n" in f"\n\n{state.instructions}\n\n"
        return state if there else state.add_instructions(self.text)
