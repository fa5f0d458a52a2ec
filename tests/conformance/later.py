"""Which cases wait for a later part, and what is still missing where a case is tested in part. Plain data."""

# Id -> what it waits for.
LATER: dict[str, str] = {}

# Id -> what a later part adds to the case, which is tested as far as there is something to test.
IN_PART: dict[str, str] = {}
