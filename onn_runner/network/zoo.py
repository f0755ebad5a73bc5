"""One number per class by a named network of torchvision or timm, its layers of any neurons. Nothing is downloaded."""

from __future__ import annotations

import difflib
import importlib
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from onn_runner import checks
from onn_runner.convert import STARTS, convert
from onn_runner.convert.conversion import Start
from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory
from onn_runner.network import options
from onn_runner.network.base import Network
from onn_runner.network.options import by
from onn_runner.plain import not_tensors, refuse_packed

OWN_ACTIVATIONS = "its own activations stay, and model.activation does nothing"
AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
"""Outputs of googlenet and inception_v3 that only training uses: in files of weights, and in no network here."""
UNREADABLE = (
    *(OSError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, struct.error),
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError),
)
"""What reading a file of other content fails with."""
PARALLEL = "module."
"""Before every name in what torch's DataParallel saved."""


class _Named(Network):
    """The network `body`, converted.

    `name`: as torchvision or timm calls it.
    `weights`: a file of its state_dict (first order); an output layer for other classes stays as it was drawn.
    `start`: exact, the converted network computes what the first-order one does; near, neurons that cannot do that come
        close for small inputs; fresh, the neurons' own initial weights; None: exact with `weights`, else fresh.
    `layers`, `keep`: patterns of module names that are converted, and of those among them that are left.

    Raises ConfigError for a name that is not known, sizes that it does not take, and weights that do not fit.
    """

    def __init__(
        self,
        factory: Factory,
        in_channels: int,
        *,
        out_channels: int,
        input_size: Sequence[int],
        output_size: Sequence[int] | None = None,
        data_range: Sequence[float] = (0.0, 1.0),
        name: str,
        weights: str | None = None,
        start: Start | None = None,
        layers: str | Sequence[str] = "*",
        keep: Sequence[str] = (),
        centre: bool = True,
    ) -> None:
        options.check_classes(output_size)
        super().__init__(dims=len(input_size), output="same", centre=centre, data_range=data_range)
        if self.dims != 2:
            raise ConfigError(
                f"network.name={name} takes images, and the data has {self.dims} axes; use network=resnet"
            )
        if start is not None:
            checks.choice("network.start", start, STARTS)
        body = self.first_order(name, in_channels, out_channels, tuple(input_size))
        notes = [] if weights is None else [load_weights(body, Path(str(weights)))]
        # two, since norms of one value per channel refuse a single one
        example = torch.rand(2, in_channels, *input_size, generator=torch.Generator().manual_seed(0)) * 2 - 1
        how: Start = start or ("fresh" if weights is None else "exact")
        try:
            report = convert(body, factory, layers=layers, keep=keep, start=how, example=example, inplace=True)
        except ConfigError as error:
            raise ConfigError(f"network.name={name}: {error}{_larger(error, input_size)}") from error
        self.body = report.network
        told = [f"network.name={name}: {report.line()}", OWN_ACTIVATIONS, *notes, *report.notes]
        self.matched = "; ".join(filter(None, told))

    def first_order(self, name: str, channels: int, classes: int, size: tuple[int, ...]) -> nn.Module:
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,  # [B, C, H, W]
    ) -> Tensor:  # [B, K]
        self.check_input(x)
        scores: Tensor = self.body(self.centred(x))
        return scores


class Torchvision(_Named):
    """A classifier of torchvision. Source: torchvision.models."""

    def first_order(self, name: str, channels: int, classes: int, size: tuple[int, ...]) -> nn.Module:
        return torchvision_model(name, channels, classes, size)


class Timm(_Named):
    """A classifier of timm, which is an extra."""

    def first_order(self, name: str, channels: int, classes: int, size: tuple[int, ...]) -> nn.Module:
        return timm_model(name, channels, classes, size)


def torchvision_model(name: str, channels: int, classes: int, size: tuple[int, ...]) -> nn.Module:
    """Of first order, with fresh weights; without auxiliary outputs. Raises ConfigError for unknown names."""
    from torchvision import models

    _check_name(name, models.list_models(module=models), "torchvision")
    given: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        given = {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        if len(set(size)) > 1:
            raise ConfigError(
                f"network.name={name} takes square pictures, and the data's are {by(size)}; set data.size"
            )
        given = {"image_size": size[0]}

    def build() -> nn.Module:
        made: nn.Module = models.get_model(name, weights=None, num_classes=classes, **given)
        return made

    network = _built(name, build)
    if channels != 3:
        _read(network, channels)
    return network


def timm_model(name: str, channels: int, classes: int, size: tuple[int, ...]) -> nn.Module:
    """Of first order, with fresh weights. Raises ConfigError without timm, and for unknown names."""
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        raise ConfigError(f"network=timm needs timm: pip install 'onn-runner[timm]' ({error})") from error
    _check_name(name, timm.list_models(), "timm")

    def build() -> nn.Module:
        given = {"pretrained": False, "num_classes": classes, "in_chans": channels}
        try:
            made: nn.Module = timm.create_model(name, **given, img_size=size)
        except TypeError:
            # most take any size, and no word on it
            made = timm.create_model(name, **given)
        return made

    return _built(name, build)


def _check_name(name: object, names: Sequence[str], whose: str) -> None:
    if name not in names:
        close = difflib.get_close_matches(str(name), names, n=5, cutoff=0.4)
        hint = f"did you mean {', '.join(close)}?" if close else f"such as {', '.join(list(names)[:5])}"
        raise ConfigError(f"network.name (={name}) is none of {whose}'s {len(names)} classifiers; {hint}")


def _built(name: str, build: Callable[[], nn.Module]) -> nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build()
    except (AssertionError, ValueError, RuntimeError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"network.name={name} cannot be built for this data: {line}") from error


def _read(network: nn.Module, channels: int) -> None:
    """Make the first convolution anew, for so many channels."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            made = nn.Conv2d(
                channels, module.out_channels, module.kernel_size, module.stride, module.padding, module.dilation,  # type: ignore[arg-type]
                bias=module.bias is not None, padding_mode=module.padding_mode,
            )  # fmt: skip
            parent, _, last = name.rpartition(".")
            setattr(network.get_submodule(parent), last, made)
            return


def load_weights(network: nn.Module, path: Path, *, key: str = "network.weights=") -> str:
    """Load a state_dict of first order; what was left out, in words. Raises ConfigError, naming `key` and the file."""
    try:
        refuse_packed(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = _tensors(path)
    except FileNotFoundError as error:
        raise ConfigError(f"{key}{path}: there is no such file") from error
    except UNREADABLE as error:
        raise ConfigError(f"{key}{path} cannot be read as tensors ({not_tensors(error)})") from error
    for inner in ("state_dict", "model", "network"):
        if isinstance(state, dict) and isinstance(state.get(inner), dict):
            state = state[inner]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ConfigError(f"{key}{path} holds no state_dict: names with tensors")
    own = network.state_dict()
    if all(str(name).startswith(PARALLEL) for name in state):
        state = {name.removeprefix(PARALLEL): value for name, value in state.items()}
    state = {name: value for name, value in state.items() if name in own or not name.startswith(AUXILIARY)}
    last = list(dict.fromkeys(name.rpartition(".")[0] for name in own))[-1]
    other = [name for name in own if name in state and state[name].shape != own[name].shape]
    unlike = [name for name in other if name.rpartition(".")[0] != last]
    odd = [*sorted(own.keys() ^ state.keys()), *unlike]
    if odd:
        raise ConfigError(f"{key}{path} are those of another network: {_odd(odd, own, state)}")
    network.load_state_dict({name: value for name, value in state.items() if name not in other}, strict=False)
    return f"{last} is for other classes in {path}: it stays as it was drawn" if other else ""


def _tensors(path: Path) -> Any:
    """The content of a file of torch, or of safetensors by its ending. Raises one of UNREADABLE."""
    if path.suffix != ".safetensors":
        return torch.load(path, map_location="cpu", weights_only=True)
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from error


def _odd(names: Sequence[str], own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """How the first of the names differs, and how many more do."""
    first, further = names[0], len(names) - 1
    there, here = ("x".join(map(str, held[first].shape)) if first in held else "missing" for held in (state, own))
    more = f", and {further} more differ" if further else ""
    return f"{first} is {there or 'a number'} there and {here or 'a number'} here{more}"


def _larger(error: ConfigError, size: Sequence[int]) -> str:
    """The remedy where the size is what does not fit."""
    return (
        f"; larger pictures (data.size, such as {4 * max(size)}) may fit"
        if "does not take an input" in str(error)
        else ""
    )
