"""Mutants of the log: what `verify` checks, and what a run writes down. As in `of_guards`."""

from tests.mutation.of_guards import Tables

_LOG = "tests/runtime/test_log_edges.py tests/runtime/test_log.py tests/runtime/test_subagents.py"

TABLES: Tables = {
    "runtime/log.py": (
        _LOG,
        (
            (
                "seals are checked",
                "_seal_problem(record, seal, secret, sealed=bool(records[0].seal))\n            or",
                "",
            ),
            ("places are checked", "or _place_problem(record, last.get(record.run))", ""),
            ("digests are checked", "or _digest_problem(record)", ""),
            (
                "a log that is not sealed satisfies no key",
                'return "it is not sealed: a log in memory',
                'return None\n        return "it is not sealed: a log in memory',
            ),
            ("the head is reached", 'if head is not None and head not in ends - {""}:', "if False:"),
            ("numbers follow", "if record.seq != before.seq + 1:", "if False:"),
            ("digests follow", "if record.prev != before.digest:", "if False:"),
            ("a torn line is found", "if torn:\n", "if False:\n"),
            ("a run below must stand in the log", "if end is None and whole:", "if False:"),
            (
                "a run below ends as its parent says",
                'if end is not None and end.digest != branch["head"]:',
                "if False:",
            ),
            (
                "a log that was cut off is not complete",
                "return bool(last) and ENDS.issuperset(last.values())",
                "return bool(last)",
            ),
        ),
    ),
    "runtime/seals.py": (
        _LOG,
        (
            (
                "a seal covers the one before it",
                "covered = (prev + text).encode()",
                "covered = text.encode()",
            ),
            ("a key is not empty", 'if made == b"":', "if False:"),
            ("a line is in the canonical form", "if unsealed(record) != text:", "if False:"),
            (
                "a keyed seal needs the key",
                "if key is None:\n        return sha256(covered)\n",
                "if True:\n        return sha256(covered)\n",
            ),
        ),
    ),
    "runtime/scribe.py": (
        "tests/runtime/test_chains.py tests/runtime/test_agent.py + tests/corruption/test_counters.py -k c01_",
        (
            (
                "strict makes a restored write an error",
                "if not transition.rejected and not (transition.restored and strict):",
                "if not transition.rejected:",
            ),
            ("a restored write is warned of", 'logging.getLogger("capfold").warning(', "str.format("),
            (
                "a transition is written down",
                "transition.kind,\n            actor=transition.key,",
                '"note",\n            actor=transition.key,',
            ),
        ),
    ),
}
