"""The overrides that make a network without some of its layers: network.removed, or fewer channels or blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onn_runner.errors import ConfigError

if TYPE_CHECKING:
    from onn_runner.analysis.importance import Importance


def override(
    network: Mapping[str, Any],  # the stored config's node
    rows: Sequence[Importance],
    chosen: Sequence[Importance],
) -> tuple[str, ...] | None:
    """None where the network has no such key.

    Raises ConfigError where what remains is no network of the kind, or the key says something about what goes.
    """
    names = [row.name for row in rows if row in chosen]
    if "removed" in network:
        return (f"network.removed={_list([*network['removed'], *names])}",)
    if "blocks" in network:
        return _fewer_blocks(network, [int(name.removeprefix("block")) for name in names])
    hidden = [row.name for row in rows if not row.stays_because]
    if "channels" in network and "depth" not in network and isinstance(network["channels"], list):
        return _shorter(network, [hidden.index(name) for name in names])
    return None


def _fewer_blocks(network: Mapping[str, Any], numbers: Sequence[int]) -> tuple[str, ...]:
    left, channels = network["blocks"] - len(numbers), network["channels"]
    if left < 1:
        raise ConfigError("a network of residual blocks needs one at least: leave out fewer")
    if not isinstance(channels, list):
        return (f"network.blocks={left}",)
    kept = [width for place, width in enumerate(channels) if place not in numbers]
    return f"network.blocks={left}", f"network.channels={_list(kept)}"


def _shorter(network: Mapping[str, Any], places: Sequence[int]) -> tuple[str, ...]:
    """Without these hidden layers of a chain, their kernels and their sampling."""
    if len(places) == len(network["channels"]):
        raise ConfigError("a network needs one hidden layer at least: leave out fewer")
    sampling = network.get("sampling")
    if sampling is not None and any(sampling[place] not in (None, "none") for place in places):
        raise ConfigError("network.sampling says what follows a layer that would go: write the smaller network by hand")
    changed = []
    for key in ("channels", "kernels", "sampling"):
        if isinstance(network.get(key), list):
            kept = [value for place, value in enumerate(network[key]) if place not in places]
            changed.append(f"network.{key}={_list(kept)}")
    return tuple(changed)


def _list(values: Sequence[Any]) -> str:
    """`[8,[3,5],none]`"""
    return "[" + ",".join(_list(value) if isinstance(value, list) else str(value) for value in values) + "]"
