"""check_capability: seeks the smallest run in which a capability breaks a law. Hypothesis does the seeking.

Lives are drawn, lived with the capability in the list, and every call of its reducers is held against the laws. So its
slot holds what it put there itself, and a record is one that the runs before it lead to.
"""

from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Final

import hypothesis
from attrs import define
from hypothesis import Phase
from hypothesis.errors import Flaky, NoSuchExample
from hypothesis.strategies import SearchStrategy

from ..capabilities.capability import AnyCapability
from ..capabilities.compose import Link
from ..capabilities.grid import HOOKS
from ..capabilities.scopes import capability_list
from .errors import HookFailed, InvalidReturn
from .laws_breach import Breach
from .laws_code import shown
from .laws_drawn import lives_for
from .laws_lives import Life, Record, live, quiet
from .laws_smallest import smallest, violation_of
from .laws_states import NO_FACTS, Facts
from .laws_steps import Step, members_of, step_of
from .laws_table import LAWS, Law, breach_of
from .laws_values import Tools
from .laws_violation import Found, LawViolation, law_named

# So many runs without a smaller finding end the search for one: a shrinker would go on for minutes, for little.
_PATIENCE: Final = 60
_WHOLE: Final = 1_000_000
_USUAL: Final = hypothesis.settings(database=None, deadline=None)


def check_capability(
    cap: AnyCapability,
    *,
    tools: Tools = None,
    facts: Facts = NO_FACTS,
    laws: Collection[str] | None = None,
    settings: hypothesis.settings | None = None,
) -> None:
    """Seek a run in which `cap` breaks a law, and raise LawViolation with the smallest one that was found.

    `cap`: a capability or a combinator, whose members are checked where they are called. `tools`: an inventory, or a
    strategy for inventories; None = any, and those that `cap` mentions. `facts`: gatherer -> strategy for what it
    returns; without one, it is drawn by the type that the gatherer declares, any JSON for `Json`. `laws`: names of
    `LAWS`; None = all. `settings`: of Hypothesis, such as `settings(max_examples=1000)`.

    A capability that no law was seen to be broken by may still break one: the examples are a sample. Raises TypeError
    for what is no capability, ValueError for a name that is no law or no gatherer of `cap`.
    """
    for violation in violations(cap, tools=tools, facts=facts, laws=laws, settings=settings):
        raise violation


def violations(
    cap: AnyCapability,
    *,
    tools: Tools = None,
    facts: Facts = NO_FACTS,
    laws: Collection[str] | None = None,
    settings: hypothesis.settings | None = None,
    seed: int | None = None,
) -> Iterator[LawViolation]:
    """Yield one violation for each law that `cap` breaks, as `check_capability` would raise them.

    `seed`: the search is the same for the same seed; None = as the settings say.
    """
    (cap,) = capability_list([cap], "check_capability")
    left = [law_named(name) for name in (LAWS if laws is None else laws)]
    members = members_of((cap,))
    for law in [law for law in left if law.once is not None]:
        for member in members.values():
            breach = law.once(member) if law.once is not None else None
            if breach is not None:
                left.remove(law)
                yield violation_of(Found(law, member, breach))
                break
    search = _Search(cap, members, left, seed)
    lives = lives_for((cap,), tools=tools, facts=facts)
    chosen = settings_of(settings)
    while search.left and any(member.overrides & _REDUCERS for member in members.values()):
        found = search.run(lives, chosen)
        if found is None:
            return
        search.left.remove(found.law)
        yield violation_of(smallest(found))


def settings_of(given: hypothesis.settings | None) -> hypothesis.settings:
    """Return the settings of a search: those given, without the phase that explains a failure line by line.

    It takes ten times as long as all others, to say what the smallest record shows anyway.
    """
    chosen = _USUAL if given is None else given
    return hypothesis.settings(
        chosen, phases=[phase for phase in chosen.phases if phase is not Phase.explain]
    )


_REDUCERS = frozenset(name for name, hook in HOOKS.items() if hook.kind == "reducer")


class _Enough(BaseException):
    """The search has found something small enough. No Exception, which Hypothesis would take for a failure."""


@define
class _Search:
    """One search for a broken law of those that are `left`.

    Once one was seen to be broken, only it is looked for, so that shrinking does not go from one fault to another.
    """

    cap: AnyCapability
    members: Mapping[str, AnyCapability]
    left: list[Law]
    seed: int | None
    aim: Law | None = None
    best: Found | None = None
    size: int = 0
    idle: int = 0

    def run(self, lives: SearchStrategy[Life], settings: hypothesis.settings) -> Found | None:
        """Return the smallest finding, None where there is none."""
        self.aim = self.best = None
        self.idle = self.size = 0
        with quiet():
            try:
                chance = None if self.seed is None else Random(self.seed)  # noqa: S311  # of examples, not of secrets
                life = hypothesis.find(lives, self.breaks, settings=settings, random=chance)
            except NoSuchExample:
                return None
            except Flaky:
                # What is not the same each time is not pure, and that is what was found.
                return self.best
            except _Enough:
                return self.best
            return self.found_in(life) or self.best

    def breaks(self, life: Life) -> bool:
        """Tell whether a law is broken in a life. Raises `_Enough` once nothing smaller has come for long."""
        found = self.found_in(life)
        if self.aim is not None:
            self.idle += 1
        if found is not None:
            self.aim = found.law
            size = len(shown(found.record, _WHOLE))
            if self.best is None or size < self.size:
                self.best, self.size, self.idle = found, size, 0
        if self.idle > _PATIENCE:
            raise _Enough
        return found is not None

    def found_in(self, life: Life) -> Found | None:
        """Return the first breach of the first law that is broken in a life."""
        steps: list[Step] = []

        def call(link: Link, record: Record) -> object:
            if link.key not in self.members:
                return link.call(record)
            step = step_of(self.members[link.key], link.hook, record)
            steps.append(step)
            return step.as_called()

        reason = live(life, (self.cap,), call)
        for law in self.left if self.aim is None else [self.aim]:
            for step in steps:
                breach = breach_of(law, step)
                if breach is not None:
                    return Found(law, step.capability, breach, step.hook, step.pristine)
        if isinstance(reason, HookFailed | InvalidReturn) and reason.key in self.members:
            return self._of_condition(reason)
        return None

    def _of_condition(self, reason: HookFailed | InvalidReturn) -> Found | None:
        """Return the finding of a `when` whose predicate failed: no hook of the capability was called."""
        total = next((law for law in self.left if law.name == "total"), None)
        if total is None or self.aim not in {None, total}:
            return None
        return Found(total, self.members[str(reason.key)], Breach(reason.message))
