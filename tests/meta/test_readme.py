"""The README keeps its word: its example is the file that `check` runs, its commands and links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenferro_interop import NvrtcOptions
from tenferro_interop._nvrtc import compile_cubin

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("quickstart", "rmsnorm_softmax", "image_filter", "torch_rmsnorm_training")
README = (ROOT / "README.md").read_text()
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_example_is_the_quickstart() -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert block[1] == (ROOT / "examples/quickstart.py").read_text()


def test_example_has_fifteen_lines() -> None:
    assert len((ROOT / "examples/quickstart.py").read_text().splitlines()) == 15


def test_commands_exist_and_may_be_run() -> None:
    for name in ("scripts/main_job.sh", "scripts/test.sh"):
        assert name in README
        assert (ROOT / name).stat().st_mode & 0o111


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_kernels_of_the_example_compile_for_a_gpu(name: str) -> None:
    text = (ROOT / f"examples/{name}.py").read_text()
    source = re.search(r'SOURCE = r?"""(.*?)"""', text, re.DOTALL)
    assert source is not None
    assert compile_cubin(source[1], NvrtcOptions(defines={"TILE": 16}), arch="sm_90").image
