"""Meters for tests of models: what a run's account is to a model, without a run."""

from attrs import Factory, define


class NoneLeft(Exception):
    """What this meter raises."""


@define
class CountingMeter:
    """Counts charges; raises when `allowed` are spent. Notes waits and returns at once from them."""

    allowed: int = 100
    charged: int = 0
    slept: list[float] = Factory(list)

    def charge(self) -> None:
        """Count one."""
        if self.charged == self.allowed:
            raise NoneLeft
        self.charged += 1

    async def sleep(self, seconds: float) -> None:
        """Note the wait."""
        self.slept.append(seconds)

    def random(self) -> float:
        """Return the middle."""
        return 0.5
