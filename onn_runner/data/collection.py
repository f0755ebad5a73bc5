"""The user's own image files as items: what images and pairs share. Files stay where they are; nothing is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from torch import Tensor

from onn_runner.checks import amount, flag, whole_number
from onn_runner.data.degraded import Degraded, WholePictures
from onn_runner.data.files import File
from onn_runner.data.groups import NAMED, group_names, listing
from onn_runner.data.memory import budget, megabytes
from onn_runner.data.patches import Cutting, Picture, Position, cutting
from onn_runner.data.stored import Manner, repeated
from onn_runner.data.survey import DARK, Candidate, Surveyed, survey
from onn_runner.errors import ConfigError


@dataclass(frozen=True)
class Files:
    """What lies in the folders: a target and, for pairs, an input of each name."""

    names: list[str]
    targets: list[File]
    inputs: list[File] | None
    bad: list[tuple[str, str]]
    """Files that have no partner, and why."""
    others: int
    """Files that were passed over."""
    origin: str
    """For the reader: "photos"; "noisy, clean"."""
    key: str
    """The config's key of the folder."""
    factor: int = 1
    """Sides of the targets over those of the inputs."""


@dataclass(frozen=True)
class Own:
    """One picture of the source, decoded when asked for."""

    surveyed: Surveyed
    channels: int
    input_channels: int

    @property
    def name(self) -> str:
        return self.surveyed.name

    @property
    def group(self) -> str:
        return self.surveyed.group

    @property
    def size(self) -> tuple[int, int]:
        return self.surveyed.target.size

    @property
    def pixels(self) -> Tensor:
        return self.surveyed.target.pixels(self.channels)

    @property
    def input(self) -> Tensor:
        """[C', H / factor, W / factor]; the picture itself where it has no input of its own."""
        stored = self.surveyed.input
        return self.pixels if stored is None else stored.pixels(self.input_channels)


@dataclass(frozen=True)
class KnownPlaces(Cutting):
    """A Cutting whose positions were found before."""

    known: dict[str, tuple[list[Position], int]] = field(default_factory=dict)

    def positions(self, photograph: Picture) -> tuple[list[Position], int]:
        return self.known[photograph.name]


class Collection(Degraded):
    """Image files of any mode and size, cut into patches that are kept in memory where they fit.

    The numbers are the same whether patches are kept or files are read, and with any number of workers.

    Raises: ConfigError for each value that cannot be carried out, and for files that cannot be used, all in one list.
    """

    photographs: Sequence[Own]

    def __init__(
        self,
        files: Files,
        *,
        groups: object,
        colour: object,
        max_side: object,
        patch: object,
        patches: object,
        placement: object,
        whole: object,
        skip_bad: object,
        in_memory: object,
        augmentation: object,
        seed: object,
    ) -> None:
        seed = whole_number("data.seed", seed, least=0)
        turning, self.scores_whole = flag("data.augmentation", augmentation), flag("data.whole", whole)
        skipping = flag("data.skip_bad", skip_bad)
        self.colour = None if colour is None else flag("data.colour", colour)
        most = None if max_side is None else whole_number("data.max_side", max_side, least=1)
        self.factor, self.files = files.factor, files
        why = f"images in data.targets {files.factor} times as large as those in data.inputs"
        cuts = cutting(patch, patches, placement, seed, leave_out="", step=files.factor, why=why)
        found = survey(
            _candidates(files, groups),
            cutting=cuts,
            factor=files.factor,
            manner=Manner(self.colour is False, most),
            budget=budget(in_memory),
        )
        self._bad = [*files.bad, *found.bad]
        if len(found.small) == len(self._bad):
            _refuse_small(files, found.small, cuts, skipping)
        _refuse_bad(files, self._bad, skipping)
        self.survey, self.max_side = found, most
        channels, input_channels = _channels(found.pictures, self.colour)
        known = {picture.name: (picture.positions, picture.constant) for picture in found.pictures}
        values: dict[str, Any] = vars(cuts)
        own = [Own(picture, channels, input_channels) for picture in found.pictures]
        super().__init__(own, KnownPlaces(**values, known=known), augmentation=turning, seed=seed)
        counts = [len(picture.positions) for picture in found.pictures]
        self.first_items = [0, *accumulate(counts)]

    def prepared(self, number: int) -> Tensor:
        return self.photographs[number].input

    def clean(self, index: int) -> Tensor:
        if self.survey.held is None:
            return super().clean(index)
        number, _ = self.places[index]
        targets, _ = self.survey.held[number]
        return repeated(targets[index - self.first_items[number]], self.photographs[number].channels)

    def patch(self, index: int) -> Tensor:
        number, _ = self.places[index]
        if self.survey.held is None:
            return super().patch(index)
        _, inputs = self.survey.held[number]
        if inputs is None:
            return self.clean(index)
        return repeated(inputs[index - self.first_items[number]], self.photographs[number].input_channels)

    def whole(self, groups: Sequence[str]) -> WholePictures | None:
        return super().whole(groups) if self.scores_whole else None

    def describe_files(self) -> list[str]:
        """Pictures and groups, what was left out and why, and how far files are what they seem."""
        pictures = self.survey.pictures
        sides = [side for picture in pictures for side in picture.target.size]
        reduced = "" if self.max_side is None else f", reduced to sides of at most {self.max_side}"
        groups = len({picture.group for picture in pictures})
        target, input = (("grey", "colour")[shape[0] == 3] for shape in (self.shape.target, self.shape.input))
        kind = target if target == input else f"{input} to {target}"
        one, several = ("image", "images") if self.files.inputs is None else ("pair of images", "pairs of images")
        lines = [
            f"{amount(len(pictures), f'{kind} {one}', several=f'{kind} {several}')} of {amount(groups, 'group')} from "
            f"{self.files.origin}, sides {min(sides)} to {max(sides)}{reduced}"
        ]
        if self.files.others:
            lines.append(f"{amount(self.files.others, 'other file')} passed over")
        if self._bad:
            lines.append(f"{len(self._bad)} left out (data.skip_bad=true): {reasons(self._bad)}")
        return [*lines, *self._remarks()]

    def _remarks(self) -> list[str]:
        pictures = self.survey.pictures
        noted: dict[str, list[str]] = {}
        for name, note in (pair for picture in pictures for pair in picture.notes()):
            noted.setdefault(note, []).append(name)
        lines = [f"{note}: {listing(names)}" for note, names in noted.items()]
        dark = [picture.name for picture in pictures if picture.dark]
        if dark:
            lines.append(
                f"no value above {DARK:g} of white in {listing(dark)}: 12-bit values must be scaled to 16 bits"
            )
        grey = [picture.name for picture in pictures if picture.target.channels < self.shape.target[0]]
        if grey:
            lines.append(f"grey, repeated in three channels: {listing(grey)} (data.colour=false makes all grey)")
        return lines

    def describe_memory(self) -> str:
        size = megabytes(self.survey.size)
        if self.survey.held is not None:
            return f"patches kept in memory, {size}"
        return f"patches ({size}) read from the files as they are needed: trainer.workers read ahead"

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.settings(), self.shape)).encode())
        for picture in self.survey.pictures:
            digest.update(f"{picture.name} {picture.group} {picture.digest}".encode())
        digest.update(repr(self.places).encode())
        return digest.hexdigest()


def _candidates(files: Files, groups: object) -> list[Candidate]:
    named = group_names(files.names, groups)
    inputs = [None] * len(files.names) if files.inputs is None else files.inputs
    return [Candidate(*values) for values in zip(files.names, named, files.targets, inputs, strict=True)]


def _channels(pictures: Sequence[Surveyed], colour: bool | None) -> tuple[int, int]:
    """Of target and input: 3 where one file has them.

    Raises: ConfigError where colour is asked for and no target has any.
    """
    target = max(picture.target.channels for picture in pictures)
    if colour and target == 1:
        raise ConfigError("data.colour (=True) needs images in colour, and all of these are grey: set data.colour=null")
    inputs = [picture.input.channels for picture in pictures if picture.input is not None]
    return target, 3 if colour else max(inputs, default=target)


def _refuse_bad(files: Files, bad: Sequence[tuple[str, str]], skipping: bool) -> None:
    total = len(files.names) + len(files.bad)
    if len(bad) == total:
        which = "its only image cannot" if total == 1 else f"none of its {total} images can"
        raise ConfigError(f"{files.key} (={files.origin}): {which} be used: {reasons(bad)}")
    if bad and not skipping:
        raise ConfigError(
            f"{files.key} (={files.origin}): {len(bad)} of {total} images cannot be used: {reasons(bad)}. "
            "Repair them or take them out, or leave them out with data.skip_bad=true"
        )


def _refuse_small(files: Files, small: Sequence[tuple[str, tuple[int, int]]], cuts: Cutting, skipping: bool) -> None:
    """Raises: ConfigError where the only fault is that images are smaller than a patch."""
    total = len(files.names) + len(files.bad)
    some = len(small) < total
    if not small or (skipping and some):
        return
    (h, w), (name, (height, width)) = cuts.size, min(small, key=lambda one: min(one[1]))
    which = f"{len(small)} of {total} images (the smallest, {name}, is {height} x {width})"
    if total == 1:
        which = f"the only image, {name} ({height} x {width})"
    remedies = [f"choose data.patch of at most {cuts.at_most([size for _, size in small])}"]
    if some:
        remedies.append("leave them out with data.skip_bad=true")
    raise ConfigError(
        f"{files.key} (={files.origin}): data.patch (={h} x {w}) is larger than {which}: {', or '.join(remedies)}"
    )


def reasons(bad: Sequence[tuple[str, str]]) -> str:
    """The first names with why they cannot be used, and how many more there are."""
    more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return "; ".join(f"{name} {reason}" for name, reason in bad[:NAMED]) + more
