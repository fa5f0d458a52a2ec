"""Billing: what each response is booked as: under which model's name, how many tokens, how many dollars.

A response stands under the configured name of the model that it was asked of, whatever dated name the provider
gave in `AssistantMessage.model`. Pure but for the price list; knows nothing of phases, hooks or how a request is sent.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..capabilities.frozen import FrozenDict, frozen_dict
from ..capabilities.messages import Usage
from ..capabilities.state import RunState
from .errors import UsageUnknown
from .limits import Limits
from .models import Meter, Model, is_model
from .prices import EXTRA, Tariff, listed_price

UNKNOWN = Usage()
# Dollars are summed to a millionth of a millionth: ten cents are ten times one cent, and the limit is met exactly.
PLACES = 12


class Bill(NamedTuple):
    """One response: the model that it was asked of, its tokens, its cost in US dollars; None = unknown."""

    model: str
    usage: Usage | None
    cost: float | None


# A call of the class costs 600 instructions more, at each request.
_bill = Bill.__new__


def tariff_of(model: Model, *, listed: bool) -> Tariff | None:
    """Return what says the cost of a model's responses: its given price or, if `listed`, the list's; else None."""
    price = model.profile.price
    if price is not None or not listed:
        return price
    url = getattr(model, "api_url", None)
    return listed_price(model.name, url if type(url) is str else None)


def bill_of(model: Model, usage: Usage | None, *, listed: bool) -> Bill:
    """Return the bill of a response of `model`; `listed`: whether the price list is asked where no price is given."""
    if usage is None:
        return Bill(model.name, None, None)
    tariff: Tariff | None = model.profile.price  # what `tariff_of` does, without the call that most need not
    if tariff is None and listed:
        tariff = tariff_of(model, listed=True)
    return _bill(Bill, model.name, usage, None if tariff is None else tariff.cost(usage))


def booked(run: RunState, bills: Iterable[Bill]) -> tuple[Usage, FrozenDict[Usage], float | None]:
    """Return `usage`, `usage_by_model` and `cost` of a run with more responses; an unknown makes a sum unknown."""
    usage, by_model, cost = run.usage, run.usage_by_model, run.cost
    for name, used, dollars in bills:
        tokens = UNKNOWN if used is None else used
        usage += tokens
        known = by_model.get(name)
        if known is None:
            by_model = by_model.assoc(name, tokens)
        elif len(by_model) == 1:  # the usual case: all responses are of one model
            by_model = frozen_dict({name: usage})
        else:
            by_model = by_model.assoc(name, known + tokens)
        if cost is not None:
            cost = None if dollars is None else round(cost + dollars, PLACES)
    return usage, by_model, cost


def models_in(model: Model) -> Sequence[Model]:
    """Return the models that a request to `model` may reach: those inside a model around models, or itself.

    A model around models has them in `models`, or the only one in `model`, and says by `sent_to` which it asks.
    """
    inside = getattr(model, "models", None)
    found = tuple(inside) if isinstance(inside, list | tuple) else (getattr(model, "model", None),)
    if not found or not all(is_model(one) for one in found):
        return (model,)
    return [leaf for one in found for leaf in models_in(one)]


def sent_to(meter: Meter, model: Model) -> None:
    """Say that the next attempt is `model`'s, by whose name and price it is booked.

    For a model around models, before it hands a request on. Raises LimitError as `charge` does, when a limit could
    not be kept with that model.
    """
    tell = getattr(meter, "sent_to", None)  # a meter of somebody's own need not care
    if tell is not None:
        tell(model)


def unaccountable(
    model: Model, limits: Limits, spent_limits: tuple[str, ...], step: int
) -> UsageUnknown | None:
    """Say why what a request to `model` uses could not be held to the limits on tokens and cost, or None."""
    if not spent_limits:
        return None
    for one in models_in(model):
        if not one.profile.reports_usage:
            limit = spent_limits[0]
            message = f"{limit} is limited, and model {one.name!r} does not report its usage"
            return UsageUnknown(message=message, limit=limit, step=step)
        if limits.cost is not None and tariff_of(one, listed=True) is None:
            message = (
                f"cost is limited, and model {one.name!r} has no known price: give it one, "
                f"ModelProfile(price=Price(input=..., output=...)), or install {EXTRA} if its list has this model"
            )
            return UsageUnknown(message=message, limit="cost", step=step)
    return None
