"""Compiled images on disk, keyed by what they were made from.

An entry carries a digest of its key and payload.  One that is truncated, altered, renamed or owned by somebody else is
deleted and reported as absent; a cache that cannot be written is logged and otherwise does nothing.
`TENFERRO_CACHE=0` turns it off, `TENFERRO_CACHE_DIR` moves it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path

_log = logging.getLogger(__name__)
_MAGIC = b"tenferro-image-1\n"
_DIGEST_SIZE = hashlib.sha256().digest_size


def directory() -> Path:
    """Return the folder of the entries, whether or not it exists."""
    chosen = os.environ.get("TENFERRO_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tenferro_interop"


def is_enabled() -> bool:
    """Whether entries are read and written at all."""
    return os.environ.get("TENFERRO_CACHE") != "0"


def key(*parts: bytes | str) -> str:
    """Digest the parts, each with its length, so that no two lists of parts read the same."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def load(key: str) -> bytes | None:
    """Return the payload stored under `key`, or None; an entry that does not prove itself is deleted."""
    if not is_enabled():
        return None
    try:
        path = directory() / key
        with path.open("rb") as file:
            is_ours = os.fstat(file.fileno()).st_uid == os.getuid()
            entry = file.read()
    except (OSError, RuntimeError):  # absent, unreadable, or no home directory
        return None
    payload = entry[len(_MAGIC) + _DIGEST_SIZE :]
    if is_ours and entry == _entry(key, payload):
        return payload
    _log.warning("cache entry %s is not what was stored, it is rebuilt", path)
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def store(key: str, payload: bytes) -> None:
    """Write an entry in one step, so that no reader sees a part of it."""
    if not is_enabled():
        return
    try:
        folder = directory()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder, key, _entry(key, payload))
    except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
        _log.warning("the cache folder must be writable, got %s. Compiled images are not kept", error)


def _entry(key: str, payload: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(key.encode() + payload).digest() + payload


def _write(folder: Path, name: str, entry: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(entry)
        os.replace(temporary, folder / name)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
