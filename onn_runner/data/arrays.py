"""(input, target) pairs out of arrays in .h5, .npz, .npy or .mat files: whole items or patches on a grid."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction

from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.checks import amount, choice, flag, refuse
from onn_runner.data import arrays_groups
from onn_runner.data import arrays_values as ranges
from onn_runner.data.arrays_base import ArrayFile
from onn_runner.data.arrays_cutting import by, grid, patch_size, scaled, turned
from onn_runner.data.arrays_files import open_file
from onn_runner.data.arrays_items import LAYOUTS, Found, Items, arrange, where_to_keep
from onn_runner.data.arrays_values import Scale, listed
from onn_runner.data.base import Item, Shape
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part

Place = tuple[int, tuple[int, ...]]
"""An item's number in the file and where a patch begins in its input."""

ROLES = ("input", "target")
LAYOUT_KEYS = ("data.layout", "data.target_layout")


class Arrays:
    """Items of two arrays, the n-th of one being the target of the n-th of the other; channels and sizes may differ.

    Which file holds them, and in which order of axes the file keeps them, changes no number of a run.

    Raises: ConfigError for each value that cannot be carried out, for files that cannot be read, and for values that
    are not finite or outside their range, with the numbers of the items.
    """

    labels: Sequence[int] | None = None

    def __init__(
        self,
        *,
        path: str | None = None,
        target_path: str | None = None,
        input: str | None = None,
        target: str | None = None,
        layout: str = "HW",
        target_layout: str | None = None,
        item_axis: int = 0,
        range: Sequence[float] | None = None,
        target_range: Sequence[float] | None = None,
        outside: str = "refuse",
        scale_to: Sequence[float] = (0, 1),
        groups: str | None = None,
        patch: int | Sequence[int] | None = None,
        augmentation: bool = False,
        skip_bad: bool = False,
        in_memory: bool | None = None,
    ) -> None:
        self.augmentation = flag("data.augmentation", augmentation)
        self.outside = choice("data.outside", outside, ranges.OUTSIDE)
        self.data_range = ranges.destination(scale_to)
        files, names = _open(path, target_path, input, target)
        self.origin = " and ".join(dict.fromkeys(str(file.path) for file in files))
        layouts = [choice("data.layout", layout, LAYOUTS)]
        layouts += [layouts[0] if target_layout is None else choice("data.target_layout", target_layout, LAYOUTS)]
        both = [
            arrange(
                file.array(name, f"data.{role}"),
                layout=letters,
                item_axis=_axis(item_axis),
                what=f"data.{role} (={_shown(name, file)})",
                key=key,
                from_matlab=file.from_matlab,
            )
            for file, name, role, letters, key in zip(files, names, ROLES, layouts, LAYOUT_KEYS, strict=True)
        ]
        self.what = [f"{role} {_shown(name, file)}" for file, name, role in zip(files, names, ROLES, strict=True)]
        self.read, self.fitting = where_to_keep(_matching(both, self.what), in_memory)
        found = [items.look() for items in self.read]
        self.digests = [one.digest for one in found]
        self.left_out, kept = _finite(found, skip_bad=flag("data.skip_bad", skip_bad))
        self._scale(found, kept, ranges.stated("data.range", range), ranges.stated("data.target_range", target_range))
        self._cut(kept, patch, arrays_groups.of_items(groups, _names(self.read[0].count), files[0]))

    def _scale(
        self, found: Sequence[Found], kept: Sequence[int], stated: ranges.Range | None, of_target: ranges.Range | None
    ) -> None:
        """One range for input and target where it is stated once, or where both are float and speak for each other."""
        known = [stated, of_target or stated]
        self.told = ["stated" if one else "by its type" for one in known]
        sources = [
            one or ranges.by_type(items, what) for one, items, what in zip(known, self.read, self.what, strict=True)
        ]
        silent = [number for number, source in enumerate(sources) if source is None]
        if silent:
            shared = ranges.by_values(
                [found[number] for number in silent], " and ".join(self.what[number] for number in silent), kept
            )
            self.told = ["by its values" if number in silent else told for number, told in enumerate(self.told)]
            sources = [source or shared for source in sources]
        limits = [source for source in sources if source is not None]
        keys = ["data.range", "data.range" if of_target is None else "data.target_range"]
        if self.outside == "refuse":
            remedy = ", or say data.outside=keep or clip"
            ranges.check_within(found[0], limits[0], self.what[0], keys[0], kept, remedy=remedy)
        ranges.check_within(found[1], limits[1], self.what[1], keys[1], kept)
        self.spans = [(float(one.low[kept].min()), float(one.high[kept].max())) for one in found]
        self.scales = [Scale(one, self.data_range, clip=self.outside == "clip") for one in limits]

    def _cut(self, kept: Sequence[int], patch: object, groups: Sequence[str]) -> None:
        inner, outer = (items.size[1:] for items in self.read)
        self.ratios = [Fraction(t, s) for s, t in zip(inner, outer, strict=True)]
        if self.augmentation and len(set(self.ratios)) > 1:
            raise ConfigError(
                f"data.augmentation turns input and target alike, and their sizes ({by(inner)} and {by(outer)}) are "
                "not in proportion: set data.augmentation=false"
            )
        self.patch = None if patch is None else patch_size(patch, inner, self.ratios)
        size = self.patch or inner
        corners = [(0,) * len(inner)] if self.patch is None else grid(inner, self.patch, self.ratios)
        self.places: list[Place] = [(number, corner) for number in kept for corner in corners]
        own = _names(self.read[0].count)
        self.groups = [groups[number] for number, _ in self.places]
        self.item_groups = {number: groups[number] for number in kept}
        self.names = [own[n] if self.patch is None else f"{own[n]}[{','.join(map(str, c))}]" for n, c in self.places]
        channels = [items.size[0] for items in self.read]
        self.shape = Shape(input=(channels[0], *size), target=(channels[1], *scaled(size, self.ratios)))

    def __len__(self) -> int:
        return len(self.places)

    def pair(self, place: Place, size: Sequence[int]) -> tuple[Tensor, Tensor]:
        """([C, *S], [C', *S']) float32 in `data_range`: what begins at a place, of this size in the input."""
        number, corner = place
        first, second = self.read
        return (
            self.scales[0](first.part(number, corner, size)),
            self.scales[1](second.part(number, scaled(corner, self.ratios), scaled(size, self.ratios))),
        )

    def training(self, indices: Sequence[int], key: tuple[Part, ...]) -> Dataset[Item]:
        return _View(self, tuple(indices), key if self.augmentation else None)

    def fixed(self, indices: Sequence[int]) -> Dataset[Item]:
        return _View(self, tuple(indices), None)

    def whole(self, groups: Sequence[str]) -> WholeItems | None:
        """The items of these groups that patches are cut from; None where the items are whole already."""
        if self.patch is None:
            return None
        wanted = set(groups)
        return WholeItems(self, tuple(number for number, group in self.item_groups.items() if group in wanted))

    def describe(self) -> list[str]:
        lines = [f"{amount(self.read[0].count, 'item')} from {self.origin}"]
        for what, items, scale, told, span in zip(
            self.what, self.read, self.scales, self.told, self.spans, strict=True
        ):
            lines.append(
                f"{what}: {by(items.size)}, {items.stored.dtype.name}, values {span[0]:g} to {span[1]:g}; range "
                f"{scale.source[0]:g} to {scale.source[1]:g} {told}, scaled to [{scale.to[0]:g}, {scale.to[1]:g}]"
            )
            if ranges.hardly_filled(span, scale.source):
                lines.append(
                    f"warning: {what} fills {100 * (span[1] - span[0]) / (scale.source[1] - scale.source[0]):.2g} % of "
                    "its range, so that PSNR and SSIM say nothing: see data.range"
                )
        if self.left_out:
            lines.append(f"{amount(len(self.left_out), 'item')} with NaN or infinity left out: {listed(self.left_out)}")
        if self.patch is not None:
            lines.append(
                f"{amount(len(self), 'patch', several='patches')} of {by(self.patch)} on a grid without overlap"
            )
        count = len(set(self.item_groups.values()))
        lines += (
            [f"{amount(len(self.item_groups), 'item')} in {amount(count, 'group')}"]
            if count < len(self.item_groups)
            else []
        )
        told = "training: flips and turns fresh each epoch" if self.augmentation else "no augmentation"
        return [*lines, f"{self.fitting}; {told}"]

    def fingerprint(self) -> str:
        settings = (self.digests, self.scales, self.augmentation, self.places, self.patch, self.groups)
        return hashlib.blake2b(repr(settings).encode(), digest_size=16).hexdigest()


class _View(Dataset[Item]):
    """`key`: what flips and turns are drawn from; None: items as they are."""

    def __init__(self, source: Arrays, indices: tuple[int, ...], key: tuple[Part, ...] | None) -> None:
        self.source, self.indices, self.key = source, indices, key

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> Item:
        index = self.indices[position]
        source = self.source
        given, wanted = source.pair(source.places[index], source.shape.input[1:])
        if self.key is not None:
            given, wanted = turned(given, wanted, *self.key, source.names[index])
        return Item(input=given, target=wanted, index=index)


class WholeItems(Dataset[Item]):
    """`index` is the item's number in the file."""

    def __init__(self, source: Arrays, numbers: tuple[int, ...]) -> None:
        self.source, self.numbers = source, numbers
        own = _names(source.read[0].count)
        self.names = [own[number] for number in numbers]
        self.groups = [source.item_groups[number] for number in numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, position: int) -> Item:
        number = self.numbers[position]
        size = self.source.read[0].size[1:]
        given, wanted = self.source.pair((number, (0,) * len(size)), size)
        return Item(input=given, target=wanted, index=number)


def _names(count: int) -> list[str]:
    return [f"item[{number}]" for number in range(count)]


def _open(path: object, target_path: object, *names: object) -> tuple[list[ArrayFile], list[object]]:
    """The files and array names of input and target. Raises ConfigError where both would be one array."""
    first = open_file(path, "data.path")
    files = [first, first if target_path is None else open_file(target_path, "data.target_path")]
    if target_path is None:
        if len(first.entries) == 1:
            only = next(iter(first.entries.values()))
            raise ConfigError(
                f"data.path (={path}) holds one array, {only}: name the targets' file in data.target_path"
            )
        for name, role in zip(names, ROLES, strict=True):
            if name is None:
                raise ConfigError(f"data.{role} must name an array of {path}, which holds {first.held}")
    shown = [_shown(name, file) for name, file in zip(names, files, strict=True)]
    if shown[0].strip("/") == shown[1].strip("/") and files[0].path.resolve() == files[1].path.resolve():
        raise ConfigError(f"input and target are the same array ({shown[0]} in {files[0].path}): name two")
    return files, list(names)


def _shown(name: object, file: ArrayFile) -> str:
    return str(name) if name is not None else next((e.name for e in file.entries.values() if e.usable), "?")


def _axis(item_axis: object) -> int:
    if isinstance(item_axis, bool) or not isinstance(item_axis, int):
        raise refuse("data.item_axis", item_axis, "a whole number: 0 for the first axis, -1 for the last")
    return item_axis


def _matching(both: Sequence[Items], what: Sequence[str]) -> Sequence[Items]:
    """Raises ConfigError where the arrays do not pair up."""
    counts, axes = [items.count for items in both], [len(items.size) - 1 for items in both]
    if counts[0] != counts[1]:
        raise ConfigError(
            f"{what[0]} has {counts[0]} items and {what[1]} has {counts[1]}: they must pair up (data.item_axis says "
            "which axis counts them)"
        )
    if axes[0] != axes[1]:
        raise ConfigError("data.layout and data.target_layout must both be of images (H, W) or both of signals (L)")
    return both


def _finite(found: Sequence[Found], *, skip_bad: bool) -> tuple[list[int], list[int]]:
    """(items left out, items kept). Raises ConfigError with the list where bad items are not to be left out."""
    bad = sorted({number for one in found for number in one.bad})
    kept = [number for number in range(len(found[0].low)) if number not in set(bad)]
    one = len(bad) == 1
    it = "it" if one else "them"
    if not kept:
        raise ConfigError(f"all {amount(len(bad), 'item')} hold NaN or infinity: nothing is left")
    if bad and not skip_bad:
        raise ConfigError(
            f"{'item' if one else 'items'} {listed(bad)} {'holds' if one else 'hold'} NaN or infinity: repair {it}, or "
            f"leave {it} out with data.skip_bad=true"
        )
    return bad, kept
