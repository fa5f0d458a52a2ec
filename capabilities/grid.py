"""The grid of hooks: the one table of what a capability can override.

Class-time checks, composition, the hook loop, `capfold rules` and the docs read it; nothing repeats it.
"""

from typing import Literal

from attrs import frozen

RecordName = Literal["RunState", "CallState"]
Kind = Literal["reducer", "wrapper", "gatherer"]


@frozen
class Hook:
    """One point of the grid: its name, what it takes, how it is called, and when."""

    name: str
    record: RecordName
    kind: Kind
    when: str
    gatherer: str | None = None
    reverse_in_nested: bool = False


HOOKS: dict[str, Hook] = {
    hook.name: hook
    for hook in (
        Hook("before_run", "RunState", "reducer", "once per run, not again on resume", "gather_before_run"),
        Hook(
            "after_run",
            "RunState",
            "reducer",
            "once, when the run completed or stopped",
            "gather_after_run",
            reverse_in_nested=True,
        ),
        Hook(
            "before_model_request",
            "RunState",
            "reducer",
            "at every step, before the request is prepared",
            "gather_before_model_request",
        ),
        Hook(
            "after_model_request",
            "RunState",
            "reducer",
            "after every response, before it enters the history",
            "gather_after_model_request",
            reverse_in_nested=True,
        ),
        Hook(
            "before_tool_execute",
            "CallState",
            "reducer",
            "per call of the prepared set, in call order, while its arguments may still change",
        ),
        Hook(
            "admit_tool_execute",
            "CallState",
            "reducer",
            "per valid call, in call order, up to a stopping one; arguments are sealed",
            "gather_admit_tool_execute",
        ),
        Hook(
            "after_tool_execute",
            "CallState",
            "reducer",
            "per call, for every outcome, once the whole batch is confirmed",
            "gather_after_tool_execute",
            reverse_in_nested=True,
        ),
        Hook("wrap_run", "RunState", "wrapper", "around the whole run, again on resume"),
        Hook("wrap_model_request", "RunState", "wrapper", "around one model request"),
        Hook("wrap_tool_execute", "CallState", "wrapper", "around one admitted tool call"),
        Hook("wrap_load_messages", "RunState", "wrapper", "around loading a conversation"),
        Hook("wrap_save_messages", "RunState", "wrapper", "around saving this run's messages"),
        Hook("wrap_prompt", "RunState", "wrapper", "around resolving the instructions"),
        Hook("gather_before_run", "RunState", "gatherer", "just before the before_run chain"),
        Hook("gather_after_run", "RunState", "gatherer", "just before the after_run chain"),
        Hook(
            "gather_before_model_request",
            "RunState",
            "gatherer",
            "just before the before_model_request chain",
        ),
        Hook(
            "gather_after_model_request", "RunState", "gatherer", "just before the after_model_request chain"
        ),
        Hook("gather_admit_tool_execute", "CallState", "gatherer", "just before the batch is judged"),
        Hook("gather_after_tool_execute", "CallState", "gatherer", "once the batch is confirmed"),
    )
}
REDUCERS: tuple[str, ...] = tuple(hook.name for hook in HOOKS.values() if hook.kind == "reducer")
WRAPPERS: tuple[str, ...] = tuple(hook.name for hook in HOOKS.values() if hook.kind == "wrapper")
GATHERERS: tuple[str, ...] = tuple(hook.name for hook in HOOKS.values() if hook.kind == "gatherer")
TOOL_HOOKS: frozenset[str] = frozenset(hook.name for hook in HOOKS.values() if hook.record == "CallState")

# A method that starts like this and is no hook is a misspelt one: it would never be called, and nobody told.
HOOK_PREFIXES: tuple[str, ...] = ("before_", "after_", "admit_", "wrap_", "gather_", "on_")

# What the same thing is called elsewhere -> the hook that was meant.
FORMER_NAMES: dict[str, str] = {
    "before_model": "before_model_request",
    "after_model": "after_model_request",
    "wrap_model": "wrap_model_request",
    "wrap_model_call": "wrap_model_request",
    "before_tool": "before_tool_execute",
    "before_tool_call": "before_tool_execute",
    "after_tool": "after_tool_execute",
    "after_tool_call": "after_tool_execute",
    "wrap_tool": "wrap_tool_execute",
    "wrap_tool_call": "wrap_tool_execute",
    "before_agent": "before_run",
    "after_agent": "after_run",
    "on_llm_call": "wrap_model_request",
    "on_turn": "wrap_run",
    "on_tool_execution": "wrap_tool_execute",
    "admit_tool": "admit_tool_execute",
    "wrap_get_prompt": "wrap_prompt",
}
