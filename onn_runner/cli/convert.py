"""`onn convert`: a first-order network made of other neurons that starts as it was; its costs before and after."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onn_runner import storage, targets
from onn_runner.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from onn_runner.convert import ConversionReport
    from onn_runner.model.base import Factory

ZOOS = ("torchvision", "timm")
NEURONS = "model=quadratic"
"""Where the words choose no model."""
SOURCES = "torchvision:NAME, timm:NAME, a run folder, or module:function of your own in the working directory"


def convert(
    source: Annotated[str, typer.Argument(help=f"{SOURCES}.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE ...]", help="The neurons, as for onn-run: model=quadratic model.type=qres."),
    ] = None,
    output: Annotated[str | None, typer.Option(help="File for the converted state_dict; FILE.yaml says how.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="File of the first-order state_dict.")] = None,
    size: Annotated[str, typer.Option(help="Channels and sides of an input.")] = "3x224x224",
    classes: Annotated[int, typer.Option(help="Of torchvision's and timm's networks.")] = 1000,
    start: Annotated[str, typer.Option(help="exact, near or fresh.")] = "exact",
    layers: Annotated[list[str] | None, typer.Option(help="Pattern of layers to convert; several times.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="Pattern of layers to leave; several times.")] = None,
    fold_norms: Annotated[bool, typer.Option("--fold-norms", help="Batch norms become part of the weights.")] = False,
    fold: Annotated[int, typer.Option(help="Of a run: whose best weights.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
    module: Annotated[
        list[str] | None,
        typer.Option("--module", help="A module of your own that the config may use, as for onn-run; several times."),
    ] = None,
) -> None:
    """A network of first-order layers becomes one of other neurons with the same outputs; nothing is trained."""
    import torch

    from onn_runner.convert import convert as converted

    targets.allow([*targets.names(module), *_named(source)])
    if output is not None:
        _check_free(output, force=force)
    chosen = _words(words or [])
    factory = _factory(chosen)
    network, shape = _network(source, _size(size), classes=classes, fold=fold)
    network.eval()
    if checkpoint is not None:
        _load(network, Path(checkpoint))
    example = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    report = converted(
        network, factory, layers=layers or "*", keep=keep or [], start=start,  # type: ignore[arg-type]
        fold_norms=fold_norms, example=example,
    )  # fmt: skip
    report.network.eval()
    with torch.no_grad():
        before, after = _tensor(network(example)), _tensor(report.network(example))
    difference = float((after - before).abs().max())
    costs = {"before": _costs(network, example), "after": _costs(report.network, example)}
    _show(report, costs["before"], costs["after"], difference)
    if output is not None:
        of_source = {"source": source, "checkpoint": checkpoint, "size": list(shape), "classes": classes, "fold": fold}
        how = {"words": chosen, "layers": layers or ["*"], "keep": keep or [], "fold_norms": fold_norms}
        _write(Path(output), report, {**of_source, **how, "difference": difference, "costs": costs})


def _check_free(output: str, *, force: bool) -> None:
    """Before any work. Raises ConfigError for a file that exists already, and for what can be none."""
    path = Path(output)
    if not output or path.is_dir():
        raise ConfigError(f"--output (={output}) must be a file, such as converted.pt")
    if not path.parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {path.parent}")
    for one in (path, _record(path)):
        if one.exists() and not force:
            raise ConfigError(f"--output {one} exists: choose another, or --force")


def _record(path: Path) -> Path:
    """Beside the state_dict: how it was made."""
    return Path(f"{path}.yaml")


def _words(words: Sequence[str]) -> list[str]:
    """With the neurons that are converted to where none are named."""
    named = any(word.partition("=")[0] in ("model", "experiment") for word in words)
    return list(words) if named else [NEURONS, *words]


def _factory(words: Sequence[str]) -> Factory:
    """The neurons that onn-run would make with these words. Raises ConfigError as it does."""
    from omegaconf import DictConfig, OmegaConf

    from onn_runner.cli import argv
    from onn_runner.cli.check import Checker, catalogue_of
    from onn_runner.cli.compose import hydra_of
    from onn_runner.cli.job import config_dirs
    from onn_runner.construct import make
    from onn_runner.operator_sets import build_operators

    command = argv.read(words, lambda text: print(f"onn: {text}", file=sys.stderr))
    with hydra_of(command) as hydra:
        whole = Checker(hydra, command, catalogue_of(command)).run()
        config = OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
        assert isinstance(config, DictConfig)
        operators, catalogue = build_operators(config, folders=config_dirs(whole.hydra), overrides=command.overrides)
        factory: Factory = make(
            config.model, "model", operators=operators, catalogue=catalogue, compute=config.compute.name,
            initialisation=config.get("initialisation", "calibrated"),
        )  # fmt: skip
    return factory


def _size(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if len(parts) < 2 or not all(part.isdigit() and int(part) for part in parts):
        raise ConfigError(f"--size (={text}) must be channels and sides, such as 3x224x224")
    return tuple(map(int, parts))


def _network(source: str, shape: tuple[int, ...], *, classes: int, fold: int) -> tuple[nn.Module, tuple[int, ...]]:
    """The first-order network, and the shape of its input."""
    kind, _, name = source.partition(":")
    if kind in ZOOS and name:
        from onn_runner.network import zoo

        make = zoo.torchvision_model if kind == "torchvision" else zoo.timm_model
        return make(name, shape[0], classes, shape[1:]), shape
    if (Path(source) / "run.json").is_file():
        from onn_runner.cli.reopening import open_run

        opened = open_run(source, device="cpu")
        return opened.network(fold), tuple(opened.experiment.source.shape.input)
    if not kind or not name:
        raise ConfigError(f"{source} is no network: give {SOURCES}")
    return _own(kind, name, source), shape


def _named(source: str) -> list[str]:
    """The module of module:function: typed here, it may be imported."""
    kind, _, name = source.partition(":")
    folder = not kind or not name or (Path(source) / "run.json").is_file()
    return [] if folder or kind.partition(".")[0] in (*ZOOS, *targets.LIBRARIES) else [kind]


def _own(module: str, function: str, source: str) -> nn.Module:
    """What a user's function makes. Raises ConfigError where there is none, or where it is no module of torch."""
    import importlib

    from torch import nn

    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, SyntaxError, AttributeError, TypeError, ValueError, RuntimeError, OSError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{source} cannot be built: {line}") from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{source} gives a {type(made).__name__}, and no torch.nn.Module")
    return made


def _load(network: nn.Module, path: Path) -> None:
    from onn_runner.network.zoo import load_weights

    note = load_weights(network, path, key="--checkpoint ")
    if note:
        print(f"onn: {note}", file=sys.stderr)


def _tensor(result: Any) -> Tensor:
    from torch import Tensor

    if not isinstance(result, Tensor):
        raise ConfigError(f"the network gives a {type(result).__name__}, and conversion compares tensors")
    return result


def _costs(network: nn.Module, example: Tensor) -> dict[str, int]:
    """Of one sample: parameters, MACs of convolutions and matrix products, bytes that are kept for backward."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from onn_runner.analysis.memory import kept_bytes

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(example)
    with torch.enable_grad():
        kept = sum(kept_bytes(network, {}, example).values())
    count = len(example)
    return {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "MACs": counter.get_total_flops() // 2 // count,
        "bytes kept": kept // count,
    }


def _show(report: ConversionReport, before: dict[str, int], after: dict[str, int], difference: float) -> None:
    from rich.text import Text

    from onn_runner.report import screen

    out = screen.console()
    rows: list[tuple[str, ...]] = [
        (one.name, one.before, one.after, "near" if one.near else str(report.start)) for one in report.converted
    ]
    rows += [(one.name, one.what, "stays", one.reason) for one in report.left]
    screen.show_rows(out, "Layers", ("layer", "was", "is", "start"), rows, left=(0, 1, 2, 3))
    totals = [
        (name, f"{one:,}", f"{after[name]:,}", f"{after[name] / max(one, 1):.2f}") for name, one in before.items()
    ]
    screen.show_rows(out, "Of one input, in evaluation", ("", "before", "after", "ratio"), totals, left=(0,))
    out.print(Text(f"  {report.line()}"))
    for norm in report.folded:
        out.print(Text(f"  {norm[1]} is in the weights of {norm[0]}"))
    out.print(Text(f"  largest difference of the outputs for random inputs: {difference:.3g}"))


def _write(path: Path, report: ConversionReport, told: dict[str, Any]) -> None:
    import torch
    import yaml

    buffer = io.BytesIO()
    torch.save(report.network.state_dict(), buffer)
    storage.write(path, buffer.getvalue())
    storage.write_text(_record(path), yaml.safe_dump({**told, **report.as_plain()}, sort_keys=False))
    print(f"onn: {path} and {_record(path)} written")
