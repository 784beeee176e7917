"""The one line that installs a wheel from its index."""

from __future__ import annotations

import re

from wheelfab.errors import UsageError

PLACEHOLDER = "https://INDEX"
_URL = re.compile(r"(?:https?|file)://[A-Za-z0-9._~%/:-]+", re.ASCII)  # nothing that a shell reads
_LONGEST = 2000


def install_line(project: str, version: str, page: str, url: str, tool: str = "pip") -> str:
    """The line that installs exactly that version, whatever other indexes are configured.

    ``url`` is where the index folder is served. The version is pinned with its local part, because
    pip merges indexes and takes the highest version of all; our index is the *extra* one, because
    uv looks at extra indexes first and stops at the first that knows the project.
    """
    index = f"{url.rstrip('/')}/{page}/"
    return f'{tool} install "{project}=={version}" --extra-index-url {index}'


def checked_url(text: str, option: str = "--index-url") -> str:
    """``text`` where it is an address that can stand in a shell's line; else ``UsageError``."""
    if len(text) > _LONGEST or not _URL.fullmatch(text):
        raise UsageError(
            f"{text[:80]!r} is no address that can stand in an install line",
            where=option,
            next_step="give the served folder, as https://example.org/wheels",
        )
    return text.rstrip("/")
