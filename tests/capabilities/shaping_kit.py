"""What tests of capabilities that shape requests share: laws, a round trip, an agent. Nothing here asserts."""

from typing import Any

from hypothesis import settings

from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, ScriptedModel
from capfold.runtime.allowed import Allowed
from capfold.runtime.dump import dump_capabilities, load_capabilities
from capfold.runtime.laws import check_capability

FEW = settings(max_examples=25, deadline=None, database=None)


def check_laws(capability: AnyCapability) -> None:
    """Seek a breach of a law, a little: the table of ready-made ones is sought through elsewhere."""
    check_capability(capability, settings=FEW)


def reloaded(capability: AnyCapability, *allowed: Allowed) -> AnyCapability:
    """Dump and load a capability."""
    (loaded,) = load_capabilities(dump_capabilities([capability]), allowed=[type(capability), *allowed])
    return loaded


# Any: the replies and keywords of ScriptedModel and Agent.
def desk(
    replies: list[Any], *capabilities: AnyCapability, **options: Any
) -> tuple[Agent[Any], ScriptedModel]:
    """Return an agent with a list, and its scripted model."""
    model = ScriptedModel(replies)
    return Agent("desk", model, capabilities=capabilities, **options), model
