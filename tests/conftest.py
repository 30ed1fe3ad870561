"""Fixtures of all tests: one cache folder, the devices, a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tenferro_interop as tfi
from tenferro_interop._devices.cuda_driver import device_count


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no GPU, and only there."""
    if device_count():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tenferro-cache")


@pytest.fixture(autouse=True)
def _cache_in_temporary_folder(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENFERRO_CACHE_DIR", str(cache_dir))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def session(device: str) -> Iterator[tfi.Session]:
    with tfi.session(device) as opened:
        yield opened


@pytest.fixture
def cpu_session() -> Iterator[tfi.Session]:
    with tfi.session("cpu") as opened:
        yield opened
