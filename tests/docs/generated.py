"""What README and docs hold of the tables, and the command that writes it: `python -m tests.docs.generated`.

A generated block stands between `<!-- name:begin -->` and `<!-- name:end -->`; BLOCKS says what belongs there.
The block `benchmarks` is written by the benchmark itself.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

from benchmarks.attacks import findings
from capfold import capabilities, runtime
from capfold.capabilities.capability import Capability
from capfold.capabilities.owners import RULES
from capfold.capabilities.state import RunState
from capfold.runtime.attempts import POLICIES
from capfold.runtime.errors import FAMILIES
from capfold.runtime.rules import (
    fields_of,
    hooks_markdown,
    markdown_table,
    owners_markdown,
    phases_markdown,
    rules_mermaid,
)
from tests.corruption import matrix
from tests.corruption.cases import GROUPS
from tests.docs.pages import WRITTEN, name_of

_BLOCK = re.compile(r"(<!-- (\w+):begin -->\n)(.*?)(<!-- \2:end -->)", re.DOTALL)
_ELSEWHERE = frozenset({"benchmarks", "durable"})


def first_sentence(thing: object) -> str:
    """Return the first line of what a class or function says of itself; of an alias, that it is one."""
    documented = inspect.isroutine(thing) or isinstance(thing, type | ModuleType)
    return (inspect.getdoc(thing) or "").partition("\n")[0] if documented else ""


def errors() -> str:
    """Return each reason a run can fail for, and the exception that carries it."""
    rows = [
        (f"`{family.__name__}`", f"`{reason.__name__}`", first_sentence(reason))
        for reason, family in FAMILIES.items()
    ]
    return markdown_table(("exception", "`error.reason`", "when"), rows)


def names(package: ModuleType) -> str:
    """Return the public names of a package, each with what it says of itself."""
    rows = []
    for name in package.__all__:
        thing = getattr(package, name)
        rows.append((f"`{name}`", first_sentence(thing) or f"see {_OTHERS[name]}"))
    return markdown_table(("name", "what it is"), rows)


# Names that are neither class nor function: they cannot say of themselves what they are.
_OTHERS = {
    "ENTITIES": "[what is found](redaction.md#what-is-found): what `detect` can look for",
    "PromptSource": "[conversations](running.md#conversations): a function that makes the instructions of a run",
    "RunEvent": "[streaming](streaming.md): any of the five events",
    "Approver": "[approval](running.md#approval): a function that decides `ApprovalRequest`s",
    "Content": "[messages](running.md#messages): a text, or a tuple of parts",
    "Decision": "[approval](running.md#approval): `Approve`, `Deny`, `Edit` or `Answer`",
    "Json": "`freeze`: None, bool, int, float, str, and frozen lists and mappings of them",
    "Message": "[messages](running.md#messages): any of the four message records",
    "Part": "[messages](running.md#messages): `TextPart`, `ImagePart`, `AudioPart` or `FilePart`",
    "Status": "[outcomes](capabilities.md#after_tool_execute): what can become of a tool call",
    "Where": "[selectors](capabilities.md#naming-tools): tool names, or a predicate on `Tool`",
    "hook": "[function hooks](capabilities.md#plain-functions): decorators, one for each hook",
}


def failures() -> str:
    """Return each kind of ModelError, and what Retry and Fallback do about it."""
    rows = [
        (f"`{kind}`", "yes" if policy.retry else "no", "yes" if policy.fallback else "no")
        for kind, policy in POLICIES.items()
    ]
    return markdown_table(("kind", "the same again", "another model"), rows)


def ready() -> str:
    """Return the ready-made capabilities, each with what it says of itself."""
    package: ModuleType = capabilities
    public = ((name, getattr(package, name)) for name in package.__all__)
    rows = [
        (f"`{name}`", first_sentence(thing))
        for name, thing in public
        if isinstance(thing, type) and issubclass(thing, Capability) and thing is not Capability
    ]
    return markdown_table(("capability", "what it does"), rows)


def writes() -> str:
    """Return which writes of a run's fields are restored and which rejected, as the changelog lists them."""
    lines = []
    for consequence in ("restored", "rejected"):
        of_it = [owner for owner, rule in RULES.items() if rule.consequence == consequence]
        lines.append(f"- **{consequence}**:")
        for owner in of_it:
            fields = ", ".join(f"`{name}`" for name in fields_of(RunState, owner)) or "of a tool call"
            legal = "; ".join(dict.fromkeys(RULES[owner].allowed.values()))
            lines.append(f"  - {owner.name} ({fields})" + (f", but for: {legal}" if legal else ""))
    return "\n".join(lines) + "\n"


def mermaid() -> str:
    """Return the phases as a diagram that Markdown viewers draw."""
    return f"```mermaid\n{rules_mermaid()}```\n"


def corruption() -> str:
    """Return what the corruption suite came to when it was last run by its command, in sums."""
    return f"{matrix.totals(matrix.read())}\n"


def cases() -> str:
    """Return each corruption case with what was seen of it, group by group."""
    rows = matrix.read()
    tables = (
        f"### {group}\n\n"
        + markdown_table(matrix.HEAD, (matrix.line_of(case.id, rows[case.id]) for case in of_it))
        for group, of_it in GROUPS.items()
    )
    return "\n".join(tables)


def attacks() -> str:
    """Return each attack that was run on capfold and its peers, with what was found."""
    found = findings.read()
    return markdown_table(("case", "attack", *findings.named(found)), findings.table(found))


def outcomes() -> str:
    """Return how many attacks ended how, for each framework."""
    found = findings.read()
    return markdown_table((f"of {len(found.rows)} attacks", *findings.named(found)), findings.sums(found))


BLOCKS: Mapping[str, Callable[[], str]] = {
    "rules": owners_markdown,
    "hooks": hooks_markdown,
    "phases": phases_markdown,
    "diagram": mermaid,
    "errors": errors,
    "failures": failures,
    "ready": ready,
    "writes": writes,
    "corruption": corruption,
    "cases": cases,
    "attacks": attacks,
    "outcomes": outcomes,
    "capabilities": lambda: names(capabilities),
    "runtime": lambda: names(runtime),
}


def filled(text: str, blocks: Mapping[str, Callable[[], str]] = BLOCKS) -> str:
    """Return a page with its generated blocks as they should be. Raises KeyError for an unknown block."""

    def fill(found: re.Match[str]) -> str:
        begin, name, body, end = found.groups()
        return f"{begin}{body if name in _ELSEWHERE else blocks[name]()}{end}"

    return _BLOCK.sub(fill, text)


def block_names(texts: Iterable[str]) -> set[str]:
    """Return the names of the generated blocks in some pages."""
    return {found[2] for text in texts for found in _BLOCK.finditer(text)}


def main() -> None:
    """Write the generated blocks of all pages anew; say which pages changed."""
    for page in WRITTEN:
        text = page.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            page.write_text(made, encoding="utf-8")
            sys.stdout.write(f"{name_of(page)}: written anew\n")


if __name__ == "__main__":
    main()
