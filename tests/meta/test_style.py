"""Rules of style that a machine can hold: sizes, leftovers, paths, and the list of public names."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("*.py", "*.pyi", "*.pyx", "*.pxi", "*.c", "*.h", "*.S")
MAX_FILE_LINES, MAX_FUNCTION_LINES = 600, 40
# In pieces, so that this file does not break its own rules.
LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?:/wo" r"rk|/ro" r"ot|/ho" r"me/\w+)/")
IGNORE = re.compile(r"# type:" r" ignore(?P<code>\[[\w, -]+\])?(?P<reason>  # \S)?")


def files(folders: tuple[str, ...], patterns: tuple[str, ...]) -> list[Path]:
    found = (path for folder in folders for pattern in patterns for path in (ROOT / folder).rglob(pattern))
    return sorted(path for path in found if "__pycache__" not in path.parts)


SHIPPED = files(("src", "native", "adapters"), CODE)
MODULES = files(("src", "adapters", "examples"), ("*.py",))
PYTHON = [*MODULES, *files(("benchmarks", "tests"), ("*.py",))]
ROOT_MODULE = ast.parse((ROOT / "src/tenferro_interop/__init__.py").read_text())


def places(paths: list[Path], pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield `file:line` and the match, for each match."""
    for path in paths:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for match in pattern.finditer(line):
                yield f"{path.relative_to(ROOT)}:{number}", match


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of the body without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def tracked() -> list[Path]:
    """Return every text of the checkout; of an unpacked archive, what lies in the known folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        return [*SHIPPED, *PYTHON, *files(("docs", "scripts"), ("*.*",))]
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix != ".png"]


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SHIPPED}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    defined = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", code_lines(node))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert {place: lines for place, lines in defined if lines > MAX_FUNCTION_LINES} == {}


def test_nothing_is_left_for_later() -> None:
    assert [place for place, _ in places([*SHIPPED, *PYTHON], LEFTOVER)] == []


def test_ignored_type_errors_have_a_code() -> None:
    assert [place for place, match in places(PYTHON, IGNORE) if not match["code"]] == []


def test_ignored_type_errors_of_the_package_have_a_reason() -> None:
    assert [place for place, match in places(MODULES, IGNORE) if not match["reason"]] == []


def test_no_paths_of_one_machine() -> None:
    assert [place for place, _ in places(tracked(), MACHINE_PATH)] == []


def test_public_names_are_sorted_and_complete() -> None:
    imported = [alias for node in ROOT_MODULE.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    listed = next(ast.literal_eval(node.value) for node in ROOT_MODULE.body if isinstance(node, ast.Assign))
    assert listed == sorted(alias.name for alias in imported)
    assert [alias.name for alias in imported if alias.asname != alias.name] == []


def test_root_holds_only_names() -> None:
    kinds = [type(node) for node in ROOT_MODULE.body[1:]]
    assert kinds == [*[ast.ImportFrom] * (len(kinds) - 1), ast.Assign]


def test_core_does_not_import_its_root() -> None:
    """The layer contract cannot see this: it takes `from . import _core` for an import of the root."""
    of_root = re.compile(r"^\s*(?:import tenferro_interop\b|from (?:tenferro_interop|\.\.?) import (?!_))")
    allowed = re.compile(r"_devices/\w+\.py:\d+$")  # `from . import Limits` is an import of `_devices`
    found = [place for place, _ in places(files(("src/tenferro_interop",), ("*.py",)), of_root)]
    assert [place for place in found if not allowed.search(place)] == []
