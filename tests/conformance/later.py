"""Which cases wait for a later part, and what is still missing where a case is tested in part. Plain data."""

_PII = "RedactPII, Guard and their detector"

# Id -> what it waits for.
LATER: dict[str, str] = {
    "H-36": "a durable port that reruns a step; attempts of a wrapper are in A-14",
    "H-37": "a durable port that reruns a step; attempts of a wrapper share one key in A-14",
    "H-41": "the model `Retry`",
    "H-42": "attachments: a blob store, and the capability that moves parts to it",
    "H-48": "check_port, for durable ports",
    "F-06": "Guard: the table of README says when to use which, once there are both",
    "F-56": _PII,
    "F-57": _PII,
    "F-58": _PII,
    "F-60": _PII,
    "F-61": _PII,
    "F-77": "the ready-made cache of responses, whose key this is about",
    "F-82": "spans of OpenTelemetry",
}

# Id -> what a later part adds to the case, which is tested as far as there is something to test.
IN_PART: dict[str, str] = {
    "H-16": "a port that runs tools elsewhere, under wrappers too",
    "H-40": "the model `Retry` in place of the test's own",
    "A-14": "RetryTool in place of the test's own",
    "A-52": "Counter, an allowance over many runs, in place of a limit of one",
    "F-02": "laws: the same pairs under the stateful RunMachine",
    "F-04": "Guard in place of the test's own",
    "F-05": "Guard in place of the test's own",
    "F-62": "RedactPII in place of the test's own",
    "F-64": "RedactPII in place of the test's own",
    "F-65": "RedactPII in place of the test's own",
    "F-69": "RedactPII in place of the test's own",
    "F-72": "RedactPII in place of the test's own",
    "F-76": "the ready-made cache of responses, on a CacheStore",
    "F-80": "the ready-made cache of results, on a CacheStore",
    "F-81": "the ready-made cache of results, on a CacheStore",
    "E-09": "RedactPII in place of the test's own",
}
