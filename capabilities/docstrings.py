"""What a docstring says about each argument. Knows nothing of functions or schemas."""

import inspect
import re

_HEADING = re.compile(r"(?:Args|Arguments|Parameters):\s*$")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def argument_docs(docstring: str | None) -> dict[str, str]:
    """Return the descriptions in the `Args:` section of a Google-style docstring, by parameter name."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    start = next((i for i, line in enumerate(lines) if _HEADING.match(line)), len(lines))
    found: dict[str, list[str]] = {}
    name, indent = "", 0
    for line in lines[start + 1 :]:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = indent or depth
        entry = _ENTRY.match(line.strip()) if depth <= indent else None
        if entry:
            name = entry[1]
            found[name] = [entry[2]]
        elif name:
            found[name].append(line.strip())
    return {name: " ".join(filter(None, texts)) for name, texts in found.items()}
