"""Prices: what the tokens of one response cost, in US dollars: a given price, or that of a library's list.

The list is `genai-prices` (the extra `prices`), which a community keeps; it is asked, and imported, only where a
run has a limit on its cost. Knows nothing of models, runs or limits: it gets a name and an address.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from attrs import Attribute, field, frozen

from ..capabilities.frozen import is_finite
from ..capabilities.messages import Usage

if TYPE_CHECKING:
    from genai_prices import Usage as ListedUsage

_MILLION = 1_000_000
# The package of the price list, as it is imported and as it is installed.
_PACKAGE = "genai_prices"
EXTRA = "capfold[prices]"


class Tariff(Protocol):
    """What says the cost of a response."""

    def cost(self, usage: Usage) -> float | None:
        """Return US dollars; None where input or output tokens are unknown."""


def _dollars(instance: object, attribute: "Attribute[Any]", value: object) -> None:  # Any: may be None or not
    if value is None and attribute.default is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(
            f"Price.{attribute.name} must be a number of US dollars per million tokens, not {value!r:.80}"
        )
    if not (is_finite(value) and value >= 0):
        raise ValueError(f"Price.{attribute.name} must be finite and at least 0, not {value!r}")


@frozen(kw_only=True)
class Price:
    """US dollars per million tokens of a model.

    `cached`: for input tokens that the provider had cached; None = as other input. Reasoning tokens are output.
    """

    input: float = field(validator=_dollars)
    output: float = field(validator=_dollars)
    cached: float | None = field(default=None, validator=_dollars)

    def cost(self, usage: Usage) -> float | None:
        """Return what a response cost; None where input or output tokens are unknown.

        Where the provider did not say how many were cached, none were: so a cost is never told too low.
        """
        given, made = usage.input_tokens, usage.output_tokens
        if given is None or made is None:
            return None
        cached = 0 if self.cached is None else min(usage.cached_tokens or 0, given)
        dollars = (given - cached) * self.input + made * self.output
        return (dollars + cached * (self.cached or 0.0)) / _MILLION


@frozen
class ListedPrice:
    """What the price list says of a model, its steps by length of input and by time included."""

    name: str
    api_url: str | None

    def cost(self, usage: Usage) -> float | None:
        """Return what a response cost by the list as it is now; None as in `Price`."""
        from genai_prices import Usage as ListedUsage  # noqa: PLC0415  # 350 ms, for who limits the cost

        given, made = usage.input_tokens, usage.output_tokens
        if given is None or made is None:
            return None
        cached = min(usage.cached_tokens or 0, given)
        return self.listed(ListedUsage(input_tokens=given, output_tokens=made, cache_read_tokens=cached))

    def listed(self, usage: "ListedUsage") -> float:
        """Return what the list says of tokens. Raises LookupError for a model that it does not have."""
        from genai_prices import calc_price  # noqa: PLC0415  # as above

        found = calc_price(usage, self.name, provider_api_url=self.api_url)
        return float(found.total_price)


@cache
def listed_price(name: str, api_url: str | None) -> ListedPrice | None:
    """Return the price of a model from the list; None when it has none, or when the list is not installed.

    `api_url` says whose model it is: the same name costs differently at two providers, and a server that the list
    does not know has no price. None: by name alone. Looked up once for each model.
    """
    try:
        from genai_prices import Usage as ListedUsage  # noqa: PLC0415  # as above
    except ModuleNotFoundError as error:
        if error.name != _PACKAGE:  # the list is there, and broken
            raise
        return None
    price = ListedPrice(name, api_url)
    try:
        price.listed(ListedUsage(input_tokens=1, output_tokens=1))
    except LookupError:
        return None
    return price
