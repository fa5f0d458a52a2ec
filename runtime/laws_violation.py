"""LawViolation: a broken law with the smallest record that shows it, as a person reads it and as a line of Python."""

from attrs import frozen

from ..capabilities.capability import AnyCapability
from .laws_breach import Breach
from .laws_code import shown
from .laws_lives import Record
from .laws_steps import members_of, step_of
from .laws_table import LAWS, Law, breach_of

_HERE = __name__.rpartition(".")[0]
_WIDTH = 110


class LawViolation(AssertionError):
    """A capability breaks a law.

    `law`: its name. `key`: of the capability, or the member of a combinator. `hook` and `record`: where, None for what
    needs no record. `field`, `before`, `after`: what went wrong with which field, None where it is about no field.
    `code`: a line of Python that raises this again, in which `cap` is the capability, and `record` the record where it
    cannot be written as source.
    """

    def __init__(
        self,
        *,
        law: str,
        key: str,
        what: str,
        hook: str | None = None,
        field: str | None = None,
        before: object = None,
        after: object = None,
        record: Record | None = None,
        code: str = "",
    ) -> None:
        """Describe it; `what` is the sentence that says what the capability did."""
        super().__init__(law, key, what)
        self.law = law
        self.key = key
        self.what = what
        self.hook = hook
        self.field = field
        self.before = before
        self.after = after
        self.record = record
        self.code = code

    def __str__(self) -> str:
        """Say it in a few lines, each bounded."""
        where = f"{self.key}.{self.hook}" if self.hook else self.key
        lines = [f"{where} {self.what}", f'law "{self.law}": {LAWS[self.law].sentence}']
        if self.field is not None:
            lines += [
                f"field   {self.field}",
                f"before  {shown(self.before)}",
                f"after   {shown(self.after)}",
            ]
        if self.record is not None:
            lines.append(f"record  {shown(self.record, 4 * _WIDTH)}")
        lines.append(f"again   {self.code}")
        return "\n".join(lines)

    def __reduce__(self) -> str | tuple[object, ...]:
        """Pickle by its parts, as a test runner with several processes does."""
        return _remade, ({name: value for name, value in vars(self).items() if not name.startswith("__")},)


def _remade(parts: dict[str, object]) -> LawViolation:
    return LawViolation(**parts)  # type: ignore[arg-type]  # its own attributes, by name


@frozen(eq=False)
class Found:
    """A breach, and the call that shows it; `record` None for what needs none."""

    law: Law
    capability: AnyCapability
    breach: Breach
    hook: str | None = None
    record: Record | None = None


def check_law(
    capability: AnyCapability,
    law: str,
    hook: str | None = None,
    record: Record | None = None,
    *,
    key: str | None = None,
) -> None:
    """Check one law on one record, or without any where `hook` is None; this is the line that a finding shows.

    `key`: which member of a combinator is meant; None = the capability, or each member that has the hook. Raises
    LawViolation, and ValueError for a name that is no law or a law that needs a record.
    """
    chosen = law_named(law)
    for member in members_of((capability,)).values():
        if key is not None and member.key != key:
            continue
        if hook is None or record is None:
            breach = None if chosen.once is None else chosen.once(member)
            found = None if breach is None else Found(chosen, member, breach)
        elif hook in member.overrides:
            breach = breach_of(chosen, step_of(member, hook, record))
            found = None if breach is None else Found(chosen, member, breach, hook, record)
        else:
            found = None
        if found is not None:
            raise raised(found, _line(found))


def _line(found: Found) -> str:
    given = "" if found.hook is None else f", {found.hook!r}, record, key={found.capability.key!r}"
    return f"from {_HERE}.laws import check_law; check_law(cap, {found.law.name!r}{given})"


def raised(found: Found, code: str) -> LawViolation:
    """Return the exception of a finding."""
    breach = found.breach
    return LawViolation(
        law=found.law.name,
        key=found.capability.key,
        what=breach.what,
        hook=found.hook,
        field=breach.field,
        before=breach.before,
        after=breach.after,
        record=found.record,
        code=code,
    )


def law_named(name: str) -> Law:
    """Return a law by its name. Raises ValueError for a name that is none."""
    found = LAWS.get(name)
    if found is None:
        raise ValueError(f"{name!r} is no law; laws are {', '.join(LAWS)}")
    return found
