"""Writes a file so that it is the old one or the new one, never half of it; and says plainly why it could not."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

from onn_runner.errors import RunError

REMEDIES = {
    errno.ENOSPC: "the disk is full: make room, then resume the run",
    errno.EDQUOT: "the disk quota is used up: make room, then resume the run",
    errno.EFBIG: "the file would be larger than is allowed here (ulimit -f): allow more, then resume the run",
    errno.EROFS: "the file system is read-only: work in another directory",
    errno.EACCES: "no permission to write there: change it, or work in another directory",
    errno.EPERM: "no permission to write there: change it, or work in another directory",
    errno.ENOENT: "its folder has vanished: restore it, then resume the run",
}

FLUSH_SECONDS = 1.0
_flushed: dict[Path, float] = {}
"""When each folder's names were last made durable."""


def failure(path: Path, error: OSError) -> RunError:
    """One sentence for a failed write, with the remedy."""
    reason = REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return RunError(f"cannot write {path}: {reason}. What was saved before is intact.")


def write(path: Path, content: bytes, *, previous: Path | None = None, often: bool = False) -> None:
    """Replace `path` by `content`, durably; the file before it is kept as `previous` if named.

    `often`: for what is written many times a second; its content is on the disk, its name at the folder's next flush.

    Raises RunError for a full disk, a closed or vanished folder; the file that was there is then untouched.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        # Made anew: one that lies there may be a link, and what it leads to would be overwritten.
        partial.unlink(missing_ok=True)
        with open(partial, "wb", opener=_not_through_a_link) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(partial, path)
        _flush(path.parent, often=often)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise failure(path, error) from error


def _not_through_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def write_text(path: Path, text: str) -> None:
    """`text` as UTF-8."""
    write(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Indented JSON; NaN and infinities become null, as JSON has none."""
    write_text(path, json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """`value` with NaN and infinities replaced by None, in nested containers too."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def publish(source: Path, destination: Path, *, often: bool = False) -> None:
    """Show `source` under a second name, as a hard link where the file system has them; `often` as in `write`."""
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        try:
            os.link(source, partial)
        except OSError:
            shutil.copyfile(source, partial)
        os.replace(partial, destination)
        # Replacing a link by another link to the same file is a no-op that leaves the first name behind.
        partial.unlink(missing_ok=True)
        _flush(destination.parent, often=often)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise failure(destination, error) from error


def remove(path: Path) -> None:
    """The file, where there is one. Raises RunError where that is not allowed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise failure(path, error) from error


def _flush(folder: Path, *, often: bool) -> None:
    """Make the renaming itself durable, where folders can be opened; `often`: unless that was done within a second.

    Until then a power cut can bring back the file that was there before, which is as whole.
    """
    now = time.monotonic()
    if os.name != "posix" or (often and now - _flushed.get(folder, -math.inf) < FLUSH_SECONDS):
        return
    _flushed[folder] = now
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
