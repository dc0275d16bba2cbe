"""What an hour of a GPU of one's own costs: the purchase, spread over the hours in which it is used."""

from __future__ import annotations

from dataclasses import dataclass

_HOURS_OF_YEAR = 8760.0
NEEDED = ("cost", "gpus", "years", "used")
"""Those that have no default."""
LIMITS = {
    "cost": (1.0, 1e11),
    "gpus": (1, 1_000_000),
    "years": (0.1, 50.0),
    "used": (0.01, 1.0),
    "yearly": (0.0, 1e11),
    "kilowatts": (0.0, 1e6),
    "per_kwh": (0.0, 1e4),
}
"""What each may be: so that no price is infinite."""


@dataclass(frozen=True, kw_only=True)
class Amortised:
    """A node, or a whole cluster: `cost` of the purchase less what it is sold for afterwards, for `gpus` GPUs over
    `years`."""

    cost: float
    gpus: float
    years: float
    used: float
    """The part of all hours in which its GPUs are allocated to jobs, 0 to 1: idle hours are paid by the used ones."""
    yearly: float = 0.0
    """Staff, space, support, in a year."""
    kilowatts: float = 0.0
    """The mean power of all of it, cooling included."""
    per_kwh: float = 0.0

    @property
    def per_hour(self) -> float:
        """The price of one used GPU-hour: (cost/years + yearly)/8760 h + power, by the GPUs that are used."""
        an_hour = (self.cost / self.years + self.yearly) / _HOURS_OF_YEAR + self.kilowatts * self.per_kwh
        return an_hour / (self.gpus * self.used)
