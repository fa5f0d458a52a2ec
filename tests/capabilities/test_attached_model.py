"""A model around a model that shows other parts: for one request, under the other's name."""

from collections.abc import Sequence

from capfold.capabilities import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from capfold.capabilities.attached_files import Medium
from capfold.capabilities.attached_model import AttachedModel, StreamedModel, attached_model
from capfold.capabilities.messages import Part
from capfold.runtime import FunctionModel, ModelRequest, ScriptedModel
from capfold.runtime.models import StreamingModel, is_model
from tests.runtime.meters import CountingMeter

REF = ImagePart(url="blob:x", media_type="image/png")
OTHER = FilePart(url="blob:y", media_type="a/b")
IMAGE = ImagePart(data=b"PNG", media_type="image/png")
SHOWN: dict[Medium, Part] = {REF: IMAGE}
ASSISTANT = AssistantMessage("")
MESSAGES: tuple[Message, ...] = (
    SystemMessage("s"),
    UserMessage((TextPart("a"), REF, OTHER)),
    ASSISTANT,
    ToolMessage("c1", "t", (REF,)),
)


class Told(CountingMeter):
    """A meter that is told whose the next attempt is."""

    told: Sequence[object] = ()

    def sent_to(self, model: object) -> None:
        """Note it."""
        self.told = (*self.told, model)


async def test_what_the_model_inside_gets() -> None:
    """Each part is shown as it was asked for, wherever it stands; all else is the identical object."""
    inner, meter = ScriptedModel(["fine", "fine"], name="inner"), Told()
    made = attached_model(inner, SHOWN)
    assert "fine" == (await made.request(ModelRequest(messages=MESSAGES), meter)).text
    (request,) = inner.requests
    assert (TextPart("a"), IMAGE, OTHER) == request.messages[1].content
    assert (IMAGE,) == request.messages[3].content
    assert request.messages[0] is MESSAGES[0]
    assert request.messages[2] is ASSISTANT
    assert (("inner", inner.profile), (inner,)) == ((made.name, made.profile), meter.told)
    assert 1 == meter.charged


async def test_it_forgets() -> None:
    """Afterwards it holds nothing of what it showed, and hands the messages on as they are."""
    inner = ScriptedModel(["fine"])
    made = attached_model(inner, SHOWN)
    made.forget()
    await made.request(ModelRequest(messages=MESSAGES), CountingMeter())
    assert MESSAGES == inner.requests[0].messages


async def test_it_streams_where_the_model_inside_does() -> None:
    """Both are models; only one around a streaming one is a streaming one."""
    plain: object = attached_model(_Plain(), SHOWN)
    streaming: object = attached_model(ScriptedModel(["fine"]), SHOWN)
    assert (AttachedModel, StreamedModel) == (type(plain), type(streaming))
    assert is_model(plain)
    assert not isinstance(plain, StreamingModel)
    assert isinstance(streaming, StreamingModel)
    async with streaming.stream(ModelRequest(messages=MESSAGES), CountingMeter()) as parts:
        *_, last = [part async for part in parts]
    assert AssistantMessage("fine").content == last.text


class _Plain:
    """A model that cannot stream."""

    name = "plain"
    profile = FunctionModel(lambda _: "fine").profile

    async def request(self, request: ModelRequest, meter: object) -> AssistantMessage:
        """Answer."""
        return ASSISTANT
