"""Each field has an owner, each owner a rule."""

import pytest
from attrs import field, fields, frozen

from capfold.capabilities.call_state import CallState
from capfold.capabilities.grid import HOOKS
from capfold.capabilities.owners import ANY, LATCH, RULES, Owner, owners
from capfold.capabilities.state import RunState

TABLE = {
    Owner.SEALED: "run_id root_run_id parent_run_id agent inventory context history_start output_spec facts",
    Owner.RUNTIME: "status run_step max_steps requests tool_calls tool_retries unselected_retries_used "
    "output_retries_used output_retries usage usage_by_model cost",
    Owner.LATCH: "stopped failed again notes",
    Owner.HISTORY: "messages",
    Owner.REQUEST: "request_messages model settings instructions tools",
    Owner.RESPONSE: "response",
    Owner.PRIVATE: "slots",
    Owner.OUTPUT: "output",
}


def test_the_owners_of_a_run_state_are_those_of_the_contract() -> None:
    """Each field of the contract's table has its owner, and there is no other field."""
    expected = {name: owner for owner, listed in TABLE.items() for name in listed.split()}
    assert expected == owners(RunState)


def test_a_call_state_is_sealed_but_for_what_hooks_write() -> None:
    """Arguments, injected values, verdict, outcome and notes are what a hook may write of a call."""
    free = {name: owner for name, owner in owners(CallState).items() if owner is not Owner.SEALED}
    expected = {
        "arguments": Owner.ARGUMENTS,
        "injected": Owner.ARGUMENTS,
        "verdict": Owner.VERDICT,
        "outcome": Owner.OUTCOME,
        "notes": Owner.LATCH,
    }
    assert expected == free


@pytest.mark.parametrize("record", [RunState, CallState])
def test_every_field_is_in_the_table(record: type[RunState | CallState]) -> None:
    """`owners` lists the fields in their order."""
    assert [item.name for item in fields(record)] == list(owners(record))


def test_a_field_without_an_owner_fails() -> None:
    """Forgetting the owner of a field is an error that names it, where the record is defined."""

    @frozen
    class Record:
        owned: int = field(default=0, metadata=LATCH)
        forgotten: int = 0

    with pytest.raises(TypeError, match=r"Record\.forgotten has no owner"):
        owners(Record)


def test_every_owner_has_a_rule_about_known_hooks() -> None:
    """The rules cover all owners and mention only hooks of the grid."""
    assert set(Owner) == set(RULES)
    mentioned = {hook for rule in RULES.values() for hook in rule.allowed}
    assert mentioned <= {ANY, *HOOKS}
