"""`torch.export` of modules with operators: round trips into new processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import in_subprocess
from torch_operators import axpy, norm_rows, scale

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:torch.*", "ignore::FutureWarning:torch.*", "ignore::UserWarning:torch.export.*"
)
HERE = str(Path(__file__).parent)


class Model(torch.nn.Module):
    """Normalises rows, scales them, and adds them to a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 5.0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = norm_rows(x, self.weight)
        total = torch.zeros_like(x)
        axpy(2.0, scale(y, 3.0), total)
        return total


def exported(device: str) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=2, max=64)
    return torch.export.export(Model().to(device), (torch.rand(3, 4, device=device),), dynamic_shapes=({0: rows},))


def test_exported_program_takes_other_shapes(device: str):
    x = torch.rand(7, 4, device=device)
    program = exported(device)
    assert "tfi_test.norm_rows" in str(program.graph)
    torch.testing.assert_close(program.module()(x), Model().to(device)(x))


def test_saved_program_runs_in_a_new_process_that_imports_the_declaration(tmp_path: Path, device: str):
    path = str(tmp_path / "model.pt2")
    torch.export.save(exported(device), path)
    x = torch.arange(8.0).view(2, 4)
    expected = Model()(x)
    done = in_subprocess(f"""
        import sys
        sys.path.insert(0, {HERE!r})
        import torch, torch_operators
        program = torch.export.load({path!r})
        print(program.module()(torch.arange(8.0, device={device!r}).view(2, 4)).tolist())
    """)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.tensor(eval(done.stdout)), expected)


def test_new_process_without_the_declaration_names_the_operator(tmp_path: Path):
    path = str(tmp_path / "model.pt2")
    torch.export.save(exported("cpu"), path)
    done = in_subprocess(f"import torch; torch.export.load({path!r})")
    assert done.returncode == 1
    assert "tfi_test" in done.stderr
