"""Writes a file so that it is the old one or the new one, never half of it; and says plainly why it could not."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from onn_runner.errors import RunError

REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space, then resume",
    errno.EDQUOT: "the disk quota is used up: free some space, then resume",
    errno.EROFS: "the file system is read-only: work in another directory",
    errno.EACCES: "no permission to write there: work in another directory or change its permissions",
    errno.EPERM: "no permission to write there: work in another directory or change its permissions",
    errno.ENOENT: "the folder has vanished: restore it, then resume",
}


def explain(error: OSError, path: Path) -> RunError:
    """One sentence for a failed write, with the remedy; nothing that was there before is lost."""
    reason = REMEDIES.get(error.errno or 0, f"{error.strerror or error}")
    return RunError(f"cannot write {path}: {reason}. What was saved before is intact.")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends well, durably; else `path` stays as it was.

    Raises RunError for a full disk, a read-only folder, a vanished folder.
    """
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
            temporary = Path(handle.name)
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        raise explain(error, path) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """`text` as UTF-8, atomically."""
    with replacing(path) as handle:
        handle.write(text.encode())


def write_json(path: Path, content: Any) -> None:
    """Indented JSON, atomically; NaN and infinities become null, as JSON has none."""
    write_text(path, json.dumps(finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """`value` with NaN and infinities replaced by None, in nested containers too."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
