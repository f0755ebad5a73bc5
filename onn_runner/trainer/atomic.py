"""Files that are either whole or absent: written beside their place, flushed to the disk, then moved there."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from onn_runner.errors import RunError

FULL = (errno.ENOSPC, errno.EDQUOT)
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def write(path: Path, content: bytes, *, previous: Path | None = None) -> None:
    """Replace `path` by `content`; the file before it is kept as `previous` if named.

    Raises RunError when the disk is full or the folder closed; the file that was there is then untouched.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(partial, path)
        _flush(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise failure(path, error) from error


def publish(source: Path, destination: Path) -> None:
    """Show `source` under a second name, as a hard link where the file system has them."""
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
        _flush(destination.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise failure(destination, error) from error


def failure(path: Path, error: OSError) -> RunError:
    """The RunError for a file that could not be written."""
    if error.errno in FULL:
        remedy = "the disk is full. What was saved before is intact: make room, then resume the run."
    elif error.errno in CLOSED:
        remedy = "no permission to write there. Make the folder writable, then resume the run."
    else:
        remedy = f"{error.strerror or error}. What was saved before is intact: resume the run when this is mended."
    return RunError(f"could not write {path}: {remedy}")


def _flush(folder: Path) -> None:
    """Make the renaming itself durable, where folders can be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
