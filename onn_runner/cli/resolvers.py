"""The OmegaConf resolvers of this product's configs: `slug`."""

from __future__ import annotations

import hashlib
import re

LONGEST = 80
"""Characters of a slug: a folder name may have 255 bytes, and a whole path 4,096 or, on Windows, 260."""


def slug(text: str) -> str:
    """`text` as one folder name: other characters become "-", long ones are cut; a hash marks that."""
    readable = re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.+")
    if readable == text and len(text) <= LONGEST:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    kept = readable[: LONGEST - len(digest) - 1].rstrip("-._")
    return f"{kept}-{digest}" if kept else digest


def register() -> None:
    """Make `${slug:...}` known; in every process that composes a config or resolves one."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("slug", lambda text: slug(str(text)), replace=True)
