"""Mutants of a run's steps: chains, the ledger, preparation, responses, wrappers, views. As in `of_guards`."""

from tests.mutation.of_guards import Tables

TABLES: Tables = {
    "runtime/ledger.py": (
        "tests/runtime/test_ledger.py + tests/corruption/test_counters.py",
        (
            ("steps are bounded", "if run.run_step >= run.max_steps:", "if False:"),
            (
                "steps are bounded to the number",
                "if run.run_step >= run.max_steps:",
                "if run.run_step > run.max_steps:",
            ),
            (
                "a deadline ends the run",
                "if limits.deadline is not None and now - started >= limits.deadline:",
                "if False:",
            ),
            (
                "requests are bounded",
                "if limits.requests is not None and run.requests >= limits.requests:",
                "if False:",
            ),
            ("tokens are bounded", "if used >= allowed:", "if False:"),
            (
                "unknown usage is not 0",
                "if used is None:\n",
                "if used is None:\n            continue\n        if False:\n",
            ),
            (
                "a batch is bounded as a whole",
                "run.tool_calls + calls > limits.tool_calls:",
                "run.tool_calls > limits.tool_calls:",
            ),
            (
                "nothing is left below zero",
                "return None if allowed is None else max(0, allowed - used)",
                "return None if allowed is None else allowed - used",
            ),
            (
                "who takes none gets none",
                "(each + (1 if rest > 0 else 0)) if taker else 0",
                "each + (1 if rest > 0 else 0)",
            ),
            (
                "the rest goes to the first",
                "(each + (1 if rest > 0 else 0)) if taker else 0",
                "each if taker else 0",
            ),
            ("the rest goes once", "rest -= taker", "rest -= 0"),
        ),
    ),
    "runtime/chains.py": (
        (
            "tests/runtime/test_chains.py tests/runtime/test_step_edges.py tests/runtime/test_gathering.py "
            "+ tests/corruption/test_returns.py tests/corruption/test_redaction.py -k c57|c73"
        ),
        (
            (
                "a hook returns its record",
                "if after is not record and type(after) is not type(record):",
                "if False:",
            ),
            (
                "a hook that raises is named",
                "raise Failure(hook_failed(link, record, error), error) from error\n    if after",
                "raise\n    if after",
            ),
            (
                "a rejection ends the run",
                "if problem is not None:\n        raise Failure(problem)\n    if link.hook",
                "if link.hook",
            ),
            (
                "each transition is checked",
                "record, transition = check(before, after, edge)",
                "record, transition = after, None",
            ),
            (
                "facts are those of the hook's own gatherer",
                "own = FrozenDict({link.key: facts[link.key]}) if link.key in facts else NO_FACTS",
                "own = FrozenDict(facts)",
            ),
            ("facts do not outlive their hook", "record = replace(record, facts=NO_FACTS)", "pass"),
            ("latches are stamped", "record = stamped(record, before, link, call_id)", "pass"),
            ("a condition is True or False", "if type(verdict) is not bool:", "if False:"),
            ("an output is lent, not given", "replace(record, output=deepcopy(output))", "record"),
            (
                "messages that hooks bring in are dated",
                "return cast(R, dated(record, before, start, work.now))",
                "return cast(R, record)",
            ),
            (
                "the last accepted state is kept",
                "record = accept(work, given, after, link, call_id)\n            work.run = run_of(record)",
                "record = accept(work, given, after, link, call_id)",
            ),
        ),
    ),
    "runtime/stepping.py": (
        (
            "tests/runtime/test_stepping.py tests/runtime/test_step_edges.py "
            "+ tests/corruption/test_tools.py tests/corruption/test_history.py -k c14|c15|c43"
        ),
        (
            (
                "the gate holds",
                "work.run = replace(run, messages=messages)\n        raise Failure(reason)",
                "work.run = replace(run, messages=messages)",
            ),
            (
                "a selection lasts one step",
                "setup.inventory,\n    )\n    work.writers",
                "run.tools,\n    )\n    work.writers",
            ),
            ("an unprepared request is not sent", "reason = unprepared(work)", "reason = None"),
            (
                "the prepared set is frozen",
                "work.prepared = tools",
                "work.prepared = work.setup.inventory",
            ),
            (
                "a projected view is examined",
                'if problem is not None:\n            return _invalid_view(work, problem, "request_messages")',
                'if False:\n            return _invalid_view(work, problem, "request_messages")',
            ),
            ("a model without tools gets none", "if run.tools and not profile.tools:", "if False:"),
            (
                "a failure before a request ends the run",
                (
                    "check_failed(work)\n        if work.run.stopped is not None:\n            "
                    'return finish(work, "stopped")\n    reason'
                ),
                'if work.run.stopped is not None:\n            return finish(work, "stopped")\n    reason',
            ),
            (
                "a stop before a request ends the run",
                'if work.run.stopped is not None:\n            return finish(work, "stopped")\n    reason',
                "reason",
            ),
        ),
    ),
    "runtime/responding.py": (
        (
            "tests/runtime/test_responding.py tests/runtime/test_step_edges.py "
            "+ tests/corruption/test_tools.py tests/corruption/test_guards.py -k c30|c46"
        ),
        (
            ("equal ids in a response are refused", "if call.id and call.id in seen:", "if False:"),
            (
                "an id of an earlier response is renamed",
                "if call.id and not index.taken(call.id, run.messages):\n            calls",
                "if call.id:\n            calls",
            ),
            ("renaming is on record", 'work.write("note", facts={"renamed_calls": renamed})', "pass"),
            (
                "a response that was cut off is no answer",
                "if response.finish_reason in CUT_OFF:",
                "if False:",
            ),
            (
                "a stop ends the run with its response",
                'close(work)\n        return finish(work, "stopped")',
                "pass",
            ),
            ("output retries are bounded", "if run.output_retries_used >= run.output_retries:", "if False:"),
            ("output retries are counted", "output_retries_used=run.output_retries_used + 1,", ""),
            (
                "an invalid output is not returned",
                "if problem is not None:\n        return ask_again",
                "if False:\n        return ask_again",
            ),
            (
                "text that no hook saw to the end is withheld",
                "work.run = replace(work.run, response=withheld(response))",
                "pass",
            ),
            ("a failed response's text is withheld", "work.run = withhold_reply(work.run)\n", "pass\n"),
            ("what broke in a wrapper ends the run", "raise work.broke(broken)", "pass"),
            (
                "a refusal is no output of a type",
                'refused = response.finish_reason == "refusal" and output.spec is not None',
                "refused = False",
            ),
        ),
    ),
    "runtime/onion.py": (
        (
            "tests/runtime/test_onions.py tests/runtime/test_onion_edges.py "
            "+ tests/corruption/test_smuggling.py tests/corruption/test_returns.py tests/corruption/test_counters.py"
        ),
        (
            ("a wrapper returns its record", "if type(after) is not type(before):", "if False:"),
            ("call_next ends with its wrapper", "if not self._open:", "if False:"),
            ("call_next is awaited", "if running:\n", "if False:\n"),
            (
                "edges are checked",
                "if problem is not None:\n                raise self.fail(problem)",
                "if False:\n                raise self.fail(problem)",
            ),
            (
                "what broke first ends the run",
                "if self.broken is None:\n            self.broken",
                "if True:\n            self.broken",
            ),
            ("a write out of place is rejected", "if misplaced is not None:", "if False:"),
            (
                "latches of a thrown-away attempt count",
                "self.latched = merge_latches(self.latched, run_of(before), run_of(record))",
                "pass",
            ),
            ("nothing begins after the run went on", "if self.over:\n", "if False:\n"),
        ),
    ),
    "runtime/model_onion.py": (
        (
            "tests/runtime/test_onions.py tests/runtime/test_onion_edges.py "
            "+ tests/corruption/test_counters.py tests/corruption/test_history.py -k c10|c43"
        ),
        (
            (
                "a response is not passed inward",
                "if isinstance(passed, RunState) and passed.response is not given.response:",
                "if False:",
            ),
            ("a view passed inward is examined", "problem = view_problem(record.view)", "problem = None"),
            (
                "the request is not rewritten afterwards",
                "if getattr(record, name) is not getattr(base, name):",
                "if False:",
            ),
            (
                "a response that came is not made up",
                "if record.response is base.response or not got or failed:",
                "if True:",
            ),
            (
                "a wrapper returns a response",
                "if not got and not replaced and not latched(given, record):",
                "if False:",
            ),
            ("a response is a message", "if type(response) is not AssistantMessage:", "if False:"),
            (
                "a limit ends the run whatever a wrapper returns",
                "broken = account.broken or ring.broken\n    run = ring",
                "broken = ring.broken\n    run = ring",
            ),
        ),
    ),
    "runtime/run_onion.py": (
        "tests/runtime/test_onions.py + tests/corruption/test_returns.py",
        (
            (
                "a run happens once",
                'raise self.fail(self.misuse(link, "called call_next twice',
                'return got[-1]\n                raise self.fail(self.misuse(link, "called call_next twice',
            ),
            ("a run is entered", "if not got:\n", "if False:\n"),
        ),
    ),
    "runtime/permissions.py": (
        "tests/runtime/test_permissions.py",
        (
            ("deny denies", 'if permission == "deny":', "if False:"),
            ("ask asks", 'if permission == "ask":', "if False:"),
            ("the last rule wins", "found = permission\n", "return permission\n"),
        ),
    ),
    "capabilities/views.py": (
        "tests/capabilities/test_views.py + tests/corruption/test_history.py -k c43",
        (
            ("a view shows more than system messages", "if not spoken:", "if False and not spoken:"),
            ("a view begins with the user", "if not isinstance(spoken[0], UserMessage):", "if False:"),
            (
                "a view ends with the user or a tool",
                "if not isinstance(spoken[-1], UserMessage | ToolMessage):",
                "if False:",
            ),
            (
                "an orphan result is found",
                'return f"message {i - 1} is a result of call',
                'continue\n            return f"message {i - 1} is a result of call',
            ),
            ("two calls of one id are found", "if len(open_calls) != len(message.tool_calls):", "if False:"),
            (
                "a second result is found",
                "if result.call_id not in open_calls:\n",
                (
                    "if result.call_id not in open_calls:\n                i += 1\n                "
                    "continue\n            if False:\n"
                ),
            ),
            ("an open call is found", "if open_calls:\n", "if False:\n"),
        ),
    ),
    "capabilities/verdict.py": (
        "tests/capabilities/test_verdict.py tests/runtime/test_guards.py",
        (
            (
                "a refusal is not taken back",
                "(other.refused is None or same(self.refused, other.refused))",
                "True",
            ),
            (
                "an approval is not taken back",
                "and same(self.approval[: len(other.approval)], other.approval)",
                "",
            ),
            (
                "an answer is not taken back",
                "and (other.answer is None or same(self.answer, other.answer))",
                "",
            ),
            (
                "the first refusal stands",
                "self.refused if self.refused is not None else other.refused,",
                "other.refused if other.refused is not None else self.refused,",
            ),
        ),
    ),
}
