"""Permissions: which tools a run may use at all; rules by name, the last that matches wins."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, get_args

from attrs import field, frozen

from ..capabilities.verdict import Ask, Refusal, Verdict

Permission: TypeAlias = Literal["allow", "ask", "deny"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
# Who says so: the run's own rules, or those of a run above it.
BY = "permissions"
ABOVE = "permissions above"


def _rules(value: object) -> tuple[tuple[str, Permission], ...]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(
            f"Permissions.rules must be pairs (glob, 'allow' | 'ask' | 'deny'), not {type(value).__name__}"
        )
    rules = tuple(tuple(rule) if isinstance(rule, Iterable) else (rule,) for rule in value)
    for i, rule in enumerate(rules):
        if len(rule) != 2 or type(rule[0]) is not str or rule[1] not in PERMISSIONS:  # noqa: PLR2004 (a pair)
            raise ValueError(f"Permissions.rules[{i}] must be (glob, 'allow' | 'ask' | 'deny'), not {rule!r}")
    return rules


def _default(instance: object, attribute: object, value: object) -> None:
    if value not in PERMISSIONS:
        raise ValueError(f"Permissions.default must be one of {', '.join(PERMISSIONS)}; not {value!r}")


@frozen
class Permissions:
    """Rules `(glob of a tool's name, "allow" | "ask" | "deny")`; the last match wins, else `default`."""

    rules: tuple[tuple[str, Permission], ...] = field(default=(), converter=_rules)
    default: Permission = field(default="allow", validator=_default)

    @property
    def allow_all(self) -> bool:
        """Whether no rule says anything but "allow"."""
        return self.default == "allow" and all(permission == "allow" for _, permission in self.rules)

    def of(self, tool: str) -> Permission:
        """Return what the rules say of a tool."""
        found = self.default
        for glob, permission in self.rules:
            if fnmatchcase(tool, glob):
                found = permission
        return found

    def verdict(self, tool: str, by: str = BY) -> Verdict | None:
        """Return what the rules add to the verdict on a call of a tool, as said by `by`; None when they allow it."""
        permission = self.of(tool)
        if permission == "deny":
            return Verdict(refused=Refusal(f"The tool {tool!r} is not permitted in this run.", by))
        if permission == "ask":
            return Verdict(approval=(Ask(f"Allow {tool}?", always="tool", by=by),))
        return None
