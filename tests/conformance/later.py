"""Which cases wait for a later part, and what is still missing where a case is tested in part. Plain data."""

# Id -> what it waits for.
LATER: dict[str, str] = {
    "H-36": "a durable port that reruns a step; attempts of a wrapper are in A-14",
    "H-37": "a durable port that reruns a step; attempts of a wrapper share one key in A-14",
    "H-48": "check_port, for durable ports",
    "F-82": "spans of OpenTelemetry",
}

# Id -> what a later part adds to the case, which is tested as far as there is something to test.
IN_PART: dict[str, str] = {
    "H-16": "a port that runs tools elsewhere, under wrappers too",
    "F-02": "laws: the same pairs under the stateful RunMachine",
}
