"""Mutants of the transition rules: guards and the check. File -> tests, and rows (check, text, what replaces it)."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Row: TypeAlias = tuple[str, str, str]
Tables: TypeAlias = Mapping[str, tuple[str, Sequence[Row]]]

TABLES: Tables = {
    "runtime/guards.py": (
        "tests/runtime/test_guards.py tests/runtime/test_guard_shapes.py",
        (
            (
                "notes are only added to",
                "len(new) > len(old) and new[: len(old)] == old\n        if grown",
                "True\n        if grown",
            ),
            ("notes are texts", "all(type(note) is str for note in new)", "True"),
            (
                "ask_again belongs to one hook",
                'if name == "again" and edge.hook != "after_model_request":',
                "if False:",
            ),
            (
                "a latch is not cleared or replaced",
                "if old is None and type(new) is LATCHES[name]:",
                "if type(new) is LATCHES[name] or new is None:",
            ),
            (
                "a latch has its type",
                "if old is None and type(new) is LATCHES[name]:",
                "if old is None:",
            ),
            (
                "before_run keeps what stood before this run",
                "if not _prefix(before.messages[:start], new):",
                "if False:",
            ),
            (
                "a run's own input is no assistant's",
                "return _illegal(f\"this run's own input holds",
                "pass\n            continue\n            return _illegal(f\"this run's own input holds",
            ),
            (
                "canonical messages are appended to only",
                "if not _prefix(before.messages, new):",
                "if False:",
            ),
            (
                "only user and system messages are appended",
                'return _illegal(f"only user and system messages',
                'continue\n            return _illegal(f"only user and system messages',
            ),
            (
                "what stood in the history stays the same objects",
                "return _legal((*before.messages, *new[len(before.messages) :]))",
                "return _legal(new)",
            ),
            (
                "a prefix is compared by type too",
                "a is b or same(a, b) for a, b in zip",
                "a == b for a, b in zip",
            ),
            ("a prefix is as long as the history", "return len(new) >= len(old) and all(", "return all("),
            (
                "settings are frozen",
                'if type(new) is not FrozenDict:\n        return _illegal("settings',
                'if False:\n        return _illegal("settings',
            ),
            (
                "settings are JSON",
                'return _legal(new) if problem is None else _illegal(f"settings is JSON',
                'return _legal(new) if True else _illegal(f"settings is JSON',
            ),
            (
                "instructions are a text",
                "return _legal(new) if type(new) is str else",
                "return _legal(new) if True else",
            ),
            ("a model is one", "if is_model(new):", "if True:"),
            (
                "a wrapper selects no tools",
                'if edge.hook == "wrap_model_request":\n        return _illegal("a wrapper cannot',
                'if False:\n        return _illegal("a wrapper cannot',
            ),
            (
                "a selection is of tools",
                "if not isinstance(new, tuple) or not all(isinstance(tool, Tool) for tool in new):",
                "if not isinstance(new, tuple):",
            ),
            ("a tool is selected once", "if tool.name in seen:", "if False:"),
            (
                "a selection is not widened",
                'return _illegal(f"a selection is only narrowed',
                'continue\n            return _illegal(f"a selection is only narrowed',
            ),
            (
                "a tuned tool keeps its gate",
                '("parameters", "function", "annotations", "capabilities")',
                '("parameters", "function", "annotations")',
            ),
            (
                "a tuned tool keeps its function",
                '("parameters", "function", "annotations", "capabilities")',
                '("parameters", "annotations", "capabilities")',
            ),
            (
                "a tuned tool keeps its annotations",
                '("parameters", "function", "annotations", "capabilities")',
                '("parameters", "function", "capabilities")',
            ),
            (
                "a tuned tool keeps its parameters",
                '("parameters", "function", "annotations", "capabilities")',
                '("function", "annotations", "capabilities")',
            ),
            (
                "the task of a projection is shown by it",
                "if new.task is not None and not any(message is new.task for message in new.messages):",
                "if False:",
            ),
            (
                "a projection covers the history",
                "if not len(before.messages) <= new.covers <= edge.history:",
                "if False:",
            ),
            (
                "what was hidden stays hidden",
                "if message in hidden:",
                "if False:",
            ),
            ("a response is one", "if not isinstance(new, AssistantMessage):", "if False:"),
            (
                "metadata of a response is JSON",
                'if problem is not None:\n        return _illegal(f"metadata is JSON',
                'if False:\n        return _illegal(f"metadata is JSON',
            ),
            (
                "a call in a made-up response names its origin",
                "return _legal(evolve(new, tool_calls=made_up) if made_up != new.tool_calls else new)",
                "return _legal(new)",
            ),
            (
                "an added call names its origin",
                "calls.append(call if call.origin == edge.key else evolve(call, origin=edge.key))",
                "calls.append(call)",
            ),
            ("a kept call is unchanged", "elif not same(call, given):", "elif False:"),
            ("ids of a response differ", "if call.id and call.id in seen:", "if False:"),
            ("usage of a response is restored", "if not same(new.usage, old.usage):", "if False:"),
            (
                "a response that was cut off stays so",
                'if new.finish_reason != old.finish_reason and old.finish_reason in {"length", "content_filter"}:',
                "if False:",
            ),
            (
                "slots are a frozen mapping",
                "if type(new) is not FrozenDict or type(old) is not FrozenDict:",
                "if False:",
            ),
            ("a slot is not removed", "if not old.keys() <= new.keys():", "if False:"),
            (
                "slots compare by type",
                "if was is value or (was is not _MISSING and same(was, value)):",
                "if was is value or was == value:",
            ),
            ("a slot is the own one", "if key != edge.key:", "if False:"),
            (
                "a slot's value is portable",
                (
                    "if problem is not None:\n            return _illegal(problem, new)\n    "
                    "return _legal(new if changed else old)"
                ),
                "return _legal(new if changed else old)",
            ),
            (
                "an output satisfies its type",
                "problem = edge.output_problem(new) if edge.output_problem is not None else None",
                "problem = None",
            ),
            (
                "arguments are a frozen mapping",
                'if type(new) is not FrozenDict:\n        return _illegal(f"{name} is a frozen',
                'if False:\n        return _illegal(f"{name} is a frozen',
            ),
            (
                "arguments are JSON",
                'if problem is not None:\n        return _illegal(f"{name} is JSON',
                'if False:\n        return _illegal(f"{name} is JSON',
            ),
            (
                "arguments satisfy the schema",
                'if name == "arguments" and edge.arguments_problem is not None:',
                "if False:",
            ),
            (
                "parts of a verdict are records of their kind",
                "problem = _verdict_problem(new) if type(new) is Verdict else",
                "problem = None if type(new) is Verdict else",
            ),
            (
                "a verdict takes nothing back",
                "if type(new) is not Verdict or not new.includes(old):",
                "if type(new) is not Verdict:",
            ),
            (
                "approval is asked for before anything runs",
                'if edge.hook == "wrap_tool_execute" and new.approval != old.approval:',
                "if False:",
            ),
            ("a refusal is signed", "refused = Refusal(refused.reason, key)", "pass"),
            ("an answer is signed", "answer = Answered(answer.content, key)", "pass"),
            (
                "who asks for approval is signed",
                "tuple(evolve(ask, by=key) for ask in",
                "tuple(ask for ask in",
            ),
            ("an outcome is one", "if type(new) is not Outcome:", "if False:"),
            ("only the runtime makes an outcome", "if not isinstance(old, Outcome):", "if False:"),
            (
                "the status of an outcome stays",
                '("status", "error", "attempts", "by")',
                '("error", "attempts", "by")',
            ),
            (
                "the error of an outcome stays",
                '("status", "error", "attempts", "by")',
                '("status", "attempts", "by")',
            ),
            (
                "the attempts of an outcome stay",
                '("status", "error", "attempts", "by")',
                '("status", "error", "by")',
            ),
            (
                "who made an outcome stays",
                '("status", "error", "attempts", "by")',
                '("status", "error", "attempts")',
            ),
            (
                "metadata of an outcome is JSON",
                'return _legal(new) if problem is None else _illegal(f"the metadata of an outcome',
                'return _legal(new) if True else _illegal(f"the metadata of an outcome',
            ),
        ),
    ),
    "runtime/transitions.py": (
        "tests/runtime/test_guards.py + tests/runtime/test_transitions.py",
        (
            (
                "the run inside a call is judged too",
                'if name == "run" and type(new) is RunState:',
                'if name == "run":\n            continue\n        if False:',
            ),
            (
                "what is restored is put back",
                "tally.restored[name] = (new, old)\n        tally.keep[name] = old",
                "tally.restored[name] = (new, old)",
            ),
            ("what is restored is on record", "tally.restored[name] = (new, old)\n", "pass\n"),
            ("what is rejected is on record", "tally.rejected[name] = (new, problem)", "pass"),
            (
                "with a rejection nothing takes effect",
                "if transition is None or not tally.changes or tally.rejected:",
                "if transition is None or not tally.changes:",
            ),
            (
                "a field without guard may not be written",
                "problem: str | None = legal_text(name, owner)",
                "problem: str | None = None",
            ),
            (
                "the gravest kind wins",
                'kind: Kind = "rejected" if self.rejected else "restored" if self.restored else "transition"',
                'kind: Kind = "transition"',
            ),
            ("restored parts inside a value are on record", "tally.restored.update(undone)", "pass"),
            (
                "forgeries of a call's run are on record",
                'self.restored.update({f"run.{name}"',
                'dict({f"run.{name}"',
            ),
            (
                "what a guard made of a value takes effect",
                "if value is not new:\n            tally.keep[name] = value",
                "if False:\n            tally.keep[name] = value",
            ),
            (
                "an equal copy is no change",
                "tally.keep[name] = old\n        else:",
                "tally.changes[name] = FromTo(old, new)\n        else:",
            ),
            (
                "change is type-strict",
                "if guard is not slots_guard and same(old, new):",
                "if guard is not slots_guard and old == new:",
            ),
            (
                "a stop says who stopped",
                'changes["stopped"] = Stop(run.stopped.message, key, hook, call_id)',
                "pass",
            ),
            (
                "a failure says who failed",
                'changes["failed"] = Fail(run.failed.reason, key, hook, call_id)',
                "pass",
            ),
        ),
    ),
}
