"""What goes wrong in the codec, as CodecErrors: with paths, and all of it at once.

Knows nothing of records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from cattrs import Converter
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote

from ..capabilities.frozen import FreezeError, Json, freeze
from ..capabilities.json_schema import path_text
from .errors import CodecError, message_of
from .problems import MAX_PROBLEMS, Path, short

K = TypeVar("K", int, str)
R = TypeVar("R")


def written(converter: Converter, value: object, kind: object, path: str) -> Json:
    """Return a value as frozen JSON, by its declared type if `kind` is not None.

    Raises CodecError with the place, below `path`, of what cannot be carried.
    """
    try:
        return freeze(converter.unstructure(value, kind))
    except CodecError:
        raise
    except FreezeError as error:
        raise CodecError(_without_path(error), path + error.path[1:]) from None
    except RecursionError:
        raise CodecError("nested too deeply, or contains itself", path) from None
    except Exception as error:  # whatever a hook raises, the value cannot be carried
        raise CodecError(short(_said(error)), path) from error


def codec_error(found: Iterable[tuple[str, str]]) -> CodecError:
    """Return the error for problems, each a path and what is wrong there; `path` is that of the first."""
    listed = iter(found)
    path, message = next(listed)
    said = [short(message)]
    said += (f"{where}: {short(text)}" for where, text in islice(listed, MAX_PROBLEMS))
    more = sum(1 for _ in listed)
    return CodecError("; ".join([*said, f"and {more} more problems"] if more else said), path)


def problems(error: BaseException, path: Path) -> Iterator[tuple[str, str]]:
    """Yield path and message of everything in an exception tree of cattrs; at least one."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from problems(one, (*path, *_steps(one)))
    elif isinstance(error, ForbiddenExtraKeysError):
        for name in sorted(error.extra_fields):
            yield path_text((*path, name)), f"is no field of {error.cl.__name__}"
    elif isinstance(error, FreezeError | CodecError):
        yield path_text(path) + error.path[1:], _without_path(error)
    elif isinstance(error, KeyError) and path and error.args == (path[-1],):
        yield path_text(path), "is missing"
    else:
        yield path_text(path), _said(error)


def each(items: Mapping[K, object], make: Callable[[K, object], R]) -> list[tuple[K, R]]:
    """Make every member, and raise all failures together, each with its key, as cattrs does."""
    made: list[tuple[K, R]] = []
    failed: list[Exception] = []
    for key, value in items.items():
        try:
            made.append((key, make(key, value)))
        except Exception as error:  # noqa: BLE001  # hooks run constructors of the user's classes
            error.add_note(IterableValidationNote(f"at {key!r}", key, None))
            failed.append(error)
    if failed:
        raise ExceptionGroup("while reading", failed)
    return made


def _steps(error: BaseException) -> Path:
    # Each group holds its own members: the note that was added last is the one of this step.
    for note in reversed(getattr(error, "__notes__", ())):
        if isinstance(note, AttributeValidationNote):
            return (note.name,)
        if isinstance(note, IterableValidationNote):
            return (note.index,)
    return ()


def _without_path(error: FreezeError | CodecError) -> str:
    return str(error).removeprefix(f"{error.path}: ")


def _said(error: BaseException) -> str:
    text = " ".join(message_of(error).split()) or "cannot be read"
    return text if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: {text}"
