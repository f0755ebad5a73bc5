"""The layers and blocks of a network by name, and which of them can be left out: network.removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onn_runner.errors import ConfigError


@dataclass(frozen=True)
class Unit:
    """One layer, or the layers of one block."""

    name: str
    """Of its module in the network, and in network.removed."""
    layers: tuple[str, ...]
    """Names in the network of its layers of neurons, a shortcut's aside."""
    stays_because: str = ""
    """Why it cannot be left out; empty where it can."""

    @property
    def removable(self) -> bool:
        return not self.stays_because


def without(units: Sequence[Unit], removed: object) -> list[Unit]:
    """The units that remain. Raises ConfigError for a name that is none of a removable unit's."""
    if isinstance(removed, str) or not isinstance(removed, Collection):
        raise ConfigError(f"network.removed (={removed}) must be a list of names, such as [{units[-1].name}]")
    names = ", ".join(unit.name for unit in units if unit.removable)
    options = f"what can be left out: {names}" if names else "nothing can be left out here"
    known = {unit.name: unit for unit in units}
    for name in removed:
        if name not in known:
            raise ConfigError(f"network.removed holds {name}, which is no layer or block here; {options}")
        if not known[name].removable:
            raise ConfigError(f"network.removed holds {name}: {known[name].stays_because}; {options}")
    return [unit for unit in units if unit.name not in removed]
