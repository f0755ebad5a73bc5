"""Which references ${...} a text of others may hold: to keys of the config, and to resolvers that only reformat."""

from __future__ import annotations

import re

HARMLESS = ("slug", "now", "hydra", r"oc\.select")
"""Others read the environment, read text as config, or are a module's own."""
START = re.compile(r"\$\{")
REFERENCE = re.compile(rf"\$\{{\s*(?:[\w.@\[\]-]*\s*\}}|(?:{'|'.join(HARMLESS)})\s*:)")


def foreign(text: str) -> str | None:
    """The first reference in `text` that is not harmless, escaped ones included; None without one."""
    for found in START.finditer(text):
        if REFERENCE.match(text, found.start()) is None:
            return text[found.start() :].partition("}")[0][:80] + "}"
    return None
