"""From arguments that fit the schema to the keyword arguments of the function: the last step before the body.

The work is bound once per signature. Knows nothing of calls, or how one type is made.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Final, TypeVar

from attrs import frozen

from ..capabilities.frozen import FrozenDict, Json, thaw
from ..capabilities.injected import InjectionError, ToolContext
from ..capabilities.json_schema import unwrap
from ..capabilities.signatures import Parameter, Signature
from ..capabilities.verdict import Problem
from .binding import Hook, Misfit, bind, checked_hook, integer, prepare
from .late_codec import Structurer

H = TypeVar("H", bound=Hook | None)


@frozen(eq=False)
class _Plan:
    signature: Signature
    converter: Structurer
    hooks: Mapping[str, Hook | None]  # per argument; None: a scalar that passes as it is
    rich: Mapping[str, Hook]  # those of the hooks that can fail
    fresh: Mapping[str, object]  # mutable defaults of Python, which calls must not share
    injected: tuple[tuple[Parameter, Hook], ...]


# By identity; a weak dictionary would cost 0.4 us at each of three look-ups per call. The plan keeps its
# signature alive, so the id stays its own.
_PLANS: dict[int, _Plan] = {}
_MAX_PLANS: Final = 1_000


def structure(
    signature: Signature, arguments: Mapping[str, Json], converter: Structurer
) -> dict[str, object]:
    """Return the keyword arguments of the function for validated arguments; nothing in them is shared.

    Only `1.0` where the schema says integer changes, to `1`. An argument that is left out is left to the
    function's default. Raises `Misfit` (a ValueError) where `rich_problems` would have told, ValueError for a
    key that is no argument.
    """
    plan = _plan(signature, converter)
    made: dict[str, object] = {}
    for name, value in arguments.items():
        try:
            hook = plan.hooks[name]
        except KeyError:
            raise ValueError(
                f"{name!r} is no argument of this function: validate before structuring"
            ) from None
        made[name] = value if hook is None else hook(value)
    if plan.fresh:
        for name, default in plan.fresh.items():
            if name not in made:
                made[name] = deepcopy(default)
    return made


def has_rich(signature: Signature, converter: Structurer) -> bool:
    """Tell whether some parameter's type says more than its schema. Binds: raises TypeError as `rich_problems`."""
    return bool(_plan(signature, converter).rich)


def rich_problems(
    signature: Signature, arguments: Mapping[str, Json], converter: Structurer
) -> tuple[Problem, ...]:
    """Return what cannot be structured in arguments that fit the schema; in the order of the parameters.

    Runs what the types run, such as attrs validators: whatever they raise is a problem, never an exception.
    With empty arguments it only binds: TypeError when the codec cannot make one of the types, so call it so
    when a tool is placed, before any run.
    """
    plan = _plan(signature, converter)
    if not plan.rich:
        return ()
    problems: list[Problem] = []
    for name, hook in plan.rich.items():
        if name in arguments:
            try:
                hook(arguments[name])
            except Misfit as misfit:
                problems.extend(Problem(f"$.{name}{path}", text) for path, text in misfit.found)
    return tuple(problems)


def inject(
    signature: Signature, context: ToolContext, injected: Mapping[str, Json], converter: Structurer
) -> dict[str, object]:
    """Return the keyword arguments that the model never fills: context, what hooks injected, deps.

    A default is used when the key is missing, fresh for each call. Raises `InjectionError` naming the key
    that is missing and has no default, or whose value does not fit the annotation.
    """
    made: dict[str, object] = {}
    for parameter, hook in _plan(signature, converter).injected:
        match parameter.source:
            case "tool_context":
                made[parameter.name] = context
            case "deps":
                made[parameter.name] = _from_deps(context.deps, parameter)
            case _:
                values = context.context if parameter.source == "context" else injected
                made[parameter.name] = _from_json(values, parameter, hook)
    return made


def _from_json(values: Mapping[str, Json], parameter: Parameter, hook: Hook) -> object:
    where = {"context": "the run's context", "call": "what hooks injected into the call"}[parameter.source]
    if parameter.key not in values:
        if parameter.required:
            raise InjectionError(
                f"parameter {parameter.name!r} needs {parameter.key!r}: not in {where}, no default",
                parameter.key,
            )
        return thaw(parameter.default)
    try:
        return hook(values[parameter.key])
    except Misfit as misfit:
        raise InjectionError(
            f"parameter {parameter.name!r} takes {parameter.annotation!r:.80}, which {parameter.key!r} "
            f"in {where} is not: {misfit}",
            parameter.key,
        ) from None


def _from_deps(deps: object, parameter: Parameter) -> object:
    try:
        return deps[parameter.key] if isinstance(deps, Mapping) else getattr(deps, parameter.key)
    except (KeyError, AttributeError):
        raise InjectionError(
            f"parameter {parameter.name!r} needs {parameter.key!r}, which the deps of this run "
            f"({type(deps).__name__}) do not have",
            parameter.key,
        ) from None


# --- binding: once per signature


def _plan(signature: Signature, converter: Structurer) -> _Plan:
    plan = _PLANS.get(id(signature))
    if plan is None or plan.converter is not converter:
        if len(_PLANS) >= _MAX_PLANS:  # signatures that come and go must not pile up
            _PLANS.clear()
        plan = _PLANS[id(signature)] = _bind_all(signature, converter)
    return plan


def _bind_all(signature: Signature, converter: Structurer) -> _Plan:
    hooks: dict[str, Hook | None] = {}
    rich: dict[str, Hook] = {}
    fresh: dict[str, object] = {}
    injected: list[tuple[Parameter, Hook]] = []
    for parameter in signature.parameters:
        if parameter.source != "arguments":
            plain = parameter.source in {"deps", "tool_context"}
            injected.append((parameter, thaw if plain else _bind_named(parameter, converter, checked_hook)))
            continue
        properties = signature.schema["properties"]
        assert isinstance(properties, FrozenDict)
        bare = unwrap(parameter.annotation)
        if bare in (str, bool, float, type(None)):
            hooks[parameter.name] = None
        elif bare is int:
            hooks[parameter.name] = integer
        else:
            made = _bind_named(parameter, converter, bind)
            hook = prepare(made, properties[parameter.name], signature.schema)
            hooks[parameter.name] = hook
            if made is not None:
                rich[parameter.name] = hook
        if isinstance(parameter.default, list | dict | set | bytearray):
            fresh[parameter.name] = parameter.default
    return _Plan(signature, converter, hooks, rich, fresh, tuple(injected))


def _bind_named(parameter: Parameter, converter: Structurer, binder: Callable[[object, Structurer], H]) -> H:
    try:
        return binder(parameter.annotation, converter)
    except Exception as error:  # whatever cattrs raises, the host's types and codec do not match
        raise TypeError(
            f"parameter {parameter.name!r}: the codec cannot make {parameter.annotation!r:.200} ({error})"
        ) from error
