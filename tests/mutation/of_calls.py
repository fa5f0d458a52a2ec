"""Mutants of what becomes of a tool call: admission, approval, execution, settling. As in `of_guards`."""

from tests.mutation.of_guards import Tables

TABLES: Tables = {
    "runtime/admission.py": (
        (
            "tests/runtime/test_admission.py tests/runtime/test_admission_edges.py "
            "tests/runtime/test_subagents_permissions.py"
        ),
        (
            (
                "a batch over the limit is refused",
                "if reason is not None:\n        raise Failure(reason)\n    prepared",
                "prepared",
            ),
            (
                "a call outside the prepared set does not run",
                "if selected is None:",
                "selected = selected or work.setup.by_name.get(asked.name)\n        if selected is None:",
            ),
            ("arguments are validated", "problems or validate_all(work, selected, arguments),", "problems,"),
            (
                "arguments that cannot be read are a problem",
                "problems or validate_all(work, selected, arguments),",
                "validate_all(work, selected, arguments),",
            ),
            (
                "an invalid call reaches no gate",
                "if call.problems:\n        return replace(call, outcome=_invalid(call))",
                "if False:\n        return replace(call, outcome=_invalid(call))",
            ),
            (
                "a repair is validated",
                "call = replace(call, problems=validate_all(work, call.tool, call.arguments))",
                "call = replace(call, problems=())",
            ),
            (
                "types beyond the schema are checked",
                "return rich(arguments) if rich is not None else ()",
                "return ()",
            ),
            (
                "a hook may not make arguments invalid",
                "arguments_problem=problem if must_be_valid else None)",
                "arguments_problem=None)",
            ),
            (
                "a failure before a call runs ends the run",
                "check_failed(work)\n    return shaped if call is start else detached(call)",
                "return shaped if call is start else detached(call)",
            ),
            (
                "calls before a stop are judged, later ones are not",
                "if stopping is not None and i >= stopping:\n            if",
                "if False:\n            if",
            ),
            (
                "a failure of a judge ends the run",
                "check_failed(work)\n            if work.run.stopped is not None:",
                "if work.run.stopped is not None:",
            ),
            (
                "a stop by a judge keeps the call from running",
                (
                    "stopping = i\n                batch[i] = replace(call, outcome=NOT_EXECUTED)\n                "
                    "continue"
                ),
                "stopping = i",
            ),
            ("permissions are asked", "call = _permitted(work, call)\n", "pass\n"),
            (
                "permissions above are asked",
                "for verdict in (*above, setup.permissions.verdict(call.name)):",
                "for verdict in (setup.permissions.verdict(call.name),):",
            ),
            (
                "refused beats all",
                "if verdict.refused is not None:\n        return",
                "if verdict.refused is not None and verdict.answer is None:\n        return",
            ),
            (
                "an answer does not pass over an approval",
                "if verdict.answer is not None and not verdict.approval:",
                "if verdict.answer is not None:",
            ),
            (
                "a stopping call's own gatherers are not asked",
                "if stopping is not None and call.index >= stopping:\n            break",
                "if False:\n            break",
            ),
            (
                "`earlier` holds what will run only",
                "if call.will_run:\n            earlier.append(call)",
                "earlier.append(call)",
            ),
        ),
    ),
    "runtime/approving.py": (
        (
            "tests/runtime/test_approving.py tests/runtime/test_admission_edges.py tests/runtime/test_machine.py "
            "+ tests/corruption/test_approval.py"
        ),
        (
            (
                "a batch is charged",
                "work.run = _CHARGED(work.run, work.run.tool_calls + len(work.batch))",
                "pass",
            ),
            ("a batch is charged once", "work.charged = True\n        work.run", "work.run"),
            ("a call that needs a person is asked about", "if requests:\n", "if False:\n"),
            (
                "a decision binds to the run",
                "return digest([work.run.run_id, call.id, call.digest])",
                "return digest([call.id, call.digest])",
            ),
            (
                "a decision binds to the call",
                "return digest([work.run.run_id, call.id, call.digest])",
                "return digest([work.run.run_id, call.digest])",
            ),
            (
                "a decision binds to what runs",
                "return digest([work.run.run_id, call.id, call.digest])",
                "return digest([work.run.run_id, call.id])",
            ),
            (
                "the narrowest grant counts",
                "return min((ask.always for ask in call.verdict.approval), key=ALWAYS.index)",
                "return max((ask.always for ask in call.verdict.approval), key=ALWAYS.index)",
            ),
            (
                "a grant covers the same arguments only",
                'return f"arguments:{call.digest}"',
                'return f"arguments:{call.tool.digest}"',
            ),
            ("a grant covers the same tool only", 'return f"tool:{call.tool.digest}"', 'return "tool"'),
            (
                "the shortest timeout counts",
                "timeout=min(timeouts, default=None)",
                "timeout=max(timeouts, default=None)",
            ),
            ("an unknown digest is refused", "if given not in wanted:", "if False:"),
            (
                "every request needs its decision",
                "if decision is None:\n            raise",
                "if decision is None:\n            continue\n            raise",
            ),
            ("a decision is one", "if not isinstance(decision, DECISIONS):", "if False:"),
            (
                "a standing approval is offered first",
                'if isinstance(decision, Approve) and decision.always and request.always == "off":',
                "if False:",
            ),
            (
                "there are as many decisions as requests",
                "if len(decisions) != len(work.pending):",
                "if False:",
            ),
            (
                "what was asked about is what would run",
                "if call is None or not same(request, request_for(work, call)):",
                "if call is None:",
            ),
            (
                "an edit is valid",
                "problems = validate_all(work, call.tool, decision.arguments)",
                "problems = ()",
            ),
            (
                "a denial is no approval",
                'return replace(call, outcome=Outcome("denied", message, by=PERSON))',
                "pass",
            ),
            ("an edit is judged again", "if edited:\n", "if False:\n"),
            (
                "calls before an edit are not judged again",
                "_unjudged(call) if call.index >= start else call",
                "_unjudged(call)",
            ),
            (
                "what a person decided is not judged away",
                'if call.outcome.status in {"denied", "answered"} and call.outcome.by != PERSON:',
                'if call.outcome.status in {"denied", "answered"}:',
            ),
            (
                "an approved call that has an answer is answered",
                "if call.outcome is None and answer is not None:",
                "if False:",
            ),
            (
                "decisions are on record",
                'work.write(\n            "call_decided"',
                'dict(\n            kind="call_decided"',
            ),
        ),
    ),
    "runtime/settling.py": (
        (
            "tests/runtime/test_settling.py tests/runtime/test_ledger.py tests/runtime/test_onions.py "
            "+ tests/corruption/test_guards.py tests/corruption/test_tools.py"
        ),
        (
            (
                "extra body runs are charged",
                "work.run = replace(work.run, tool_calls=work.run.tool_calls + extra)",
                "pass",
            ),
            ("entries of wrappers are kept", "work.entries.extend(entries)", "pass"),
            ("latches of wrappers count", "work.run = merge_latches(work.run, given, after)", "pass"),
            ("the first thing that broke ends the run", "broken = broken or problem", "pass"),
            (
                "an outcome is on record",
                'work.event("tool_settled", names, facts, call.asked.id, outcome.by)',
                "pass",
            ),
            (
                "a start is on record",
                'work.event("tool_started", STARTED, (call.tool.name,), call.asked.id)',
                "pass",
            ),
            ("an admission is on record", 'work.event("call_admitted", names, facts, call.asked.id)', "pass"),
            ("a refusal is on record", "write_refusal(work, call.asked, call.outcome)", "pass"),
            (
                "the first stop in call order stands",
                'if run.stopped is None:\n            changes["stopped"]',
                'if True:\n            changes["stopped"]',
            ),
            (
                "a failure by a wrapper ends the run",
                "if work.run.failed is not None:\n        raise Failure(blocked(work))\n    quiet",
                "quiet",
            ),
            (
                "a failure by an after hook ends the run",
                "if work.run.failed is not None:\n        raise Failure(blocked(work))\n    return call",
                "return call",
            ),
            ("what broke is raised after settling", "raise Failure(reason, cause)", "pass"),
            ("a stop ends the run after settling", 'return finish(work, "stopped")', "pass"),
            ("retries are counted", "count_retries(work, batch)", "pass"),
            (
                "shares are split among those that may run again",
                "shares = ledger.shares(ledger.left(limits.tool_calls, run.tool_calls), takers)",
                "shares = (None,) * len(running)",
            ),
        ),
    ),
    "runtime/retries.py": (
        "tests/runtime/test_settling.py tests/runtime/test_step_edges.py + tests/corruption/test_tools.py -k c14",
        (
            (
                "failures are forgiven so often only",
                "if has_failed and used > prepared[name].max_retries:",
                "if False:",
            ),
            (
                "a success starts anew",
                "if has_failed:\n            counts[name]",
                "if True:\n            counts[name]",
            ),
            (
                "calls outside the prepared set are forgiven so often only",
                "if used > work.setup.unselected_retries:",
                "if False:",
            ),
            (
                "one success in a step makes it one",
                "failed.setdefault(call.asked.name, True)",
                "failed[call.asked.name] = True",
            ),
        ),
    ),
    "runtime/tool_onion.py": (
        (
            "tests/runtime/test_onions.py tests/runtime/test_onion_edges.py tests/runtime/test_ledger.py "
            "+ tests/corruption/test_guards.py tests/runtime/test_budgets.py -k c63|test_budgets"
        ),
        (
            (
                "a share bounds the body",
                "if self.attempts and self.share is not None",
                "if False and self.share is not None",
            ),
            (
                "a call that ran is not refused",
                'return "verdict", "a call that ran cannot be refused any more"',
                "return None",
            ),
            (
                "a refused further attempt leaves what came of the one before",
                "if done is not None:  # a further attempt",
                "if False:  # a further attempt",
            ),
            (
                "only a failure is answered over",
                'return "outcome", f"only a failed outcome',
                'return None\n                return "outcome", f"only a failed outcome',
            ),
            ("a wrapper returns an outcome", "if not latched(given, record):", "if False:"),
            (
                "body runs beyond the first are counted",
                "extra = max(0, self.attempts - 1)\n        outcome",
                "extra = 0\n        outcome",
            ),
            (
                "who answered is on record",
                'return Outcome("answered", content, by=link.key)',
                'return Outcome("answered", content)',
            ),
        ),
    ),
}
