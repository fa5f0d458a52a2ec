"""Secret: a value held by reference, so that a configuration can be described and logged."""

import os

from attrs import Attribute, field, frozen

from .messages import text_field


def _name(instance: object, attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    if not value or "=" in value:
        raise ValueError(f"Secret takes the name of an environment variable, not {value!r}")


@frozen
class Secret:
    """The name of an environment variable that holds a secret; only `reveal` reads it."""

    name: str = field(validator=_name)

    @classmethod
    def env(cls, name: str) -> "Secret":
        """Refer to an environment variable."""
        return cls(name)

    def reveal(self) -> str:
        """Return the secret. Raises LookupError naming the variable when it is not set."""
        try:
            return os.environ[self.name]
        except KeyError:
            raise LookupError(f"the environment variable {self.name} is not set") from None
