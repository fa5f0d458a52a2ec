"""The demo: a person approved 10; what ran? One real little job, then the same with broken capabilities.

It makes a folder, runs the job, prints the timelines, and reports what person, log and ledger say.
Knows nothing of click: what it prints goes through `echo`.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import anyio
from attrs import frozen

from ..capabilities.capability import AnyCapability
from .agent import Agent
from .demo_desk import TOOLS, Desk
from .demo_lists import DESK, INSTRUCTIONS, TASK, CentsAroundTool, CentsWhenJudged, ForgeCounter, script
from .demo_report import Account, Promise, checked_log, table, told
from .demo_terminal import BOLD, GREEN, RED, YELLOW, Choice, Echo, Person, painted, warnings_told
from .errors import ModelRunError, RunError
from .limits import Limits
from .models import Model, as_model
from .short import printable
from .sinks import JsonLines
from .timeline import timeline

WIDTH = 100
PROMISED = "nothing ran but what a person had approved, and the logs say who tried what."


class DemoError(ValueError):
    """The demo was called wrongly; nothing was done."""


@frozen
class Scene:
    """One run: `capabilities` are added to the desk's own."""

    name: str
    title: str
    about: str
    capabilities: tuple[AnyCapability, ...]
    promise: Promise


SCENES = (
    Scene("1-as-written", "1 as written", "The desk's own list of four capabilities.", (), Promise()),
    Scene(
        "2-around-the-tool",
        "2 changed around the tool",
        "Two more: ForgeCounter forges a counter, CentsAroundTool turns 10 into 1000 after the approval.",
        (ForgeCounter(), CentsAroundTool()),
        Promise("ForgeCounter", "CentsAroundTool"),
    ),
    Scene(
        "3-while-judged",
        "3 changed while judged",
        "ForgeCounter again, and CentsWhenJudged: it turns 10 into 1000 once RequireApproval has seen 10.",
        (ForgeCounter(), CentsWhenJudged()),
        Promise("ForgeCounter", "CentsWhenJudged", asked=False),
    ),
)


def run_demo(model: str | None, choice: Choice | None, folder: Path | None, echo: Echo) -> int:
    """Run it all; return 0 when everything was as promised, else 1.

    `model`: a model string, None = a script. `choice`: what the person decides, None = ask at the terminal.
    Raises DemoError, before anything is done, for a model that is unknown or has no key, and for a folder
    that cannot be made or is not empty.
    """
    made = None if model is None else real_model(model)
    place = made_folder(folder)
    echo(painted("A person approved 10; what ran?", BOLD))
    echo(f"Model: {'a script, no key needed' if made is None else made.name}. Files and logs: {place}")
    if choice is None and not sys.stdin.isatty():
        choice = "yes"
        echo("There is no terminal to ask at: the demo decides yes, as with --yes.")
    kept: list[tuple[Account, Promise]] = []
    with warnings_told(echo):
        for scene in SCENES:
            echo("")
            echo(painted(f"== Run {scene.title}", BOLD))
            echo(scene.about)
            try:
                account = anyio.run(play, scene, made or script(), Person(choice, echo), place)
            except ModelRunError as error:
                echo(painted(f"The demo ends here: {printable(str(error))}", RED))
                return 1
            show(account, echo)
            kept.append((account, scene.promise))
    return conclude(kept, place, echo)


async def play(scene: Scene, model: Model, person: Person, place: Path) -> Account:
    """Play one scene on a desk of its own, and read back what became of it. Raises ModelRunError."""
    desk = Desk(place / "invoices", place / "ledgers" / f"{scene.name}.sqlite")
    desk.open()
    sink = JsonLines(place / "logs" / f"{scene.name}.jsonl")
    agent: Agent[str] = Agent(
        "payments-desk",
        model,
        instructions=INSTRUCTIONS,
        tools=TOOLS,
        capabilities=(*DESK, *scene.capabilities),
        limits=Limits(max_steps=20),
        approver=person.decide,
        deps={"desk": desk},
        sinks=[sink],
    )
    failure = ""
    try:
        await agent.run(TASK, run_id=scene.name)
    except ModelRunError:
        raise
    except RunError as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        await sink.close()
    log, problem = checked_log(sink.path)
    return Account(
        title=scene.title,
        log=log,
        log_problem=problem,
        shown=tuple(person.shown),
        approved=tuple(person.approved),
        ledger=desk.payments(),
        error=failure,
    )


def show(account: Account, echo: Echo) -> None:
    """Print the timeline of a run, how it ended, and whether its log holds."""
    echo("")
    for line in timeline(account.log, width=WIDTH, brief=True).splitlines():
        echo(re.sub("RESTORED|REJECTED", lambda found: painted(found[0], YELLOW), line))
    echo("")
    if account.error:
        echo(painted(fill(printable(account.error), WIDTH, break_on_hyphens=False), RED))
    paid = f"Paid, by the ledger: {told(account.ledger)}."
    denied = " The person said no." if account.shown and not account.approved else ""
    echo(f"{paid}{denied}")
    if account.log_problem is not None:
        echo(painted(f"The log does not hold: {account.log_problem}", RED))


def conclude(kept: Sequence[tuple[Account, Promise]], place: Path, echo: Echo) -> int:
    """Print the table and the verdict; return the exit code."""
    echo("")
    echo(painted("== What ran?", BOLD))
    for line in table([account.row() for account, _ in kept]):
        echo(line)
    problems = [f"{account.title}: {text}" for account, promise in kept for text in account.problems(promise)]
    echo("")
    for text in problems:
        echo(painted(f"NOT AS PROMISED  {printable(text)}", RED))
    if not problems:
        echo(painted(f"As promised: {PROMISED}", GREEN))
    log = place / "logs" / f"{SCENES[1].name}.jsonl"
    echo(f"Look closer: capfold log show {log}\n             capfold log verify {log}")
    return 1 if problems else 0


def real_model(name: str) -> Model:
    """Return the model of a string. Raises DemoError for an unknown one, the echo, and a missing key."""
    if name == "test":
        raise DemoError("the model 'test' only echoes: write openai:NAME, or leave --model out")
    try:
        return as_model(name)
    except ValueError as error:
        raise DemoError(str(error)) from error


def made_folder(folder: Path | None) -> Path:
    """Return a folder with what belongs in it. Raises DemoError where it cannot be made, or is not empty."""
    try:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="capfold-demo-"))
        elif folder.exists() and any(folder.iterdir()):
            raise DemoError(f"the folder {folder} is not empty: name a new one")
        for name in ("invoices", "ledgers", "logs"):
            (folder / name).mkdir(parents=True)
    except OSError as error:
        raise DemoError(f"the folder cannot be made: {error}") from error
    return folder
