"""The disk cache: what proves itself is returned, anything else is deleted."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from tenferro_interop import _image_cache as cache

KEY = cache.key("a")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TENFERRO_CACHE", raising=False)
    monkeypatch.setenv("TENFERRO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_round_trip():
    cache.store(KEY, b"image")
    assert cache.load(KEY) == b"image"


def test_empty_payload_is_not_absence():
    cache.store(KEY, b"")
    assert cache.load(KEY) == b""


def test_absent():
    assert cache.load(KEY) is None


def test_key_tells_lists_of_parts_apart():
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key(b"abc", "")}) == 4


def test_text_and_its_bytes_are_one_key():
    assert cache.key("é") == cache.key("é".encode())


def test_folder_is_private(folder: Path):
    cache.store(KEY, b"image")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == [KEY]


@pytest.mark.parametrize("damage", [b"", b"tenferro", b"\x7fELF" + b"\0" * 100])
def test_foreign_entry_is_deleted(folder: Path, damage: bytes):
    cache.store(KEY, b"image")
    (folder / KEY).write_bytes(damage)
    assert cache.load(KEY) is None
    assert not (folder / KEY).exists()


def test_truncated_entry_is_deleted(folder: Path):
    cache.store(KEY, b"image")
    entry = (folder / KEY).read_bytes()
    (folder / KEY).write_bytes(entry[:-1])
    assert cache.load(KEY) is None
    assert not (folder / KEY).exists()


def test_altered_entry_is_deleted(folder: Path):
    cache.store(KEY, b"image")
    entry = bytearray((folder / KEY).read_bytes())
    entry[-1] ^= 1
    (folder / KEY).write_bytes(entry)
    assert cache.load(KEY) is None


def test_renamed_entry_is_refused(folder: Path):
    other = cache.key("b")
    cache.store(KEY, b"image")
    (folder / KEY).rename(folder / other)
    assert cache.load(other) is None


def test_another_users_entry_is_refused(monkeypatch: pytest.MonkeyPatch):
    cache.store(KEY, b"image")
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert cache.load(KEY) is None


def test_unwritable_folder_is_logged_only(folder: Path, caplog: pytest.LogCaptureFixture):
    folder.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        cache.store(KEY, b"image")
    assert str(folder) in caplog.text
    assert cache.load(KEY) is None


def test_failed_write_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", refuse)
    cache.store(KEY, b"image")
    assert list(folder.iterdir()) == []


def test_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch):
    cache.store(KEY, b"image")
    monkeypatch.setenv("TENFERRO_CACHE", "0")
    assert cache.load(KEY) is None
    cache.store(cache.key("b"), b"image")
    assert len(list(folder.iterdir())) == 1


def test_default_folders(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TENFERRO_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache.directory() == Path("/xdg/tenferro_interop")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.directory() == Path.home() / ".cache/tenferro_interop"


def test_no_home_directory_is_logged_only(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TENFERRO_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", refuse)
    cache.store(KEY, b"image")
    assert "home directory" in caplog.text
    assert cache.load(KEY) is None
