"""Operators in DDP, FSDP2 and on distributed tensors, over gloo; `shard` itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_operators import axpy, norm_rows

import tenferro_interop as tfi
from tenferro_interop_torch import op, shard

PROGRAM = Path(__file__).with_name("distributed_program.py")


def test_two_processes_train_and_shard_as_one_would(tmp_path: Path):
    command = [sys.executable, "-X", "faulthandler", str(PROGRAM)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), "2", str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        ends = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [out.strip()[-4:] for out, _ in ends] == ["well", "well"], "\n".join(err[-3000:] for _, err in ends)


def test_unknown_tensor_is_refused():
    with pytest.raises(tfi.ValidationError) as error:
        shard(norm_rows, {"x": 0, "q": 0})
    assert (error.value.argument, error.value.actual) == ("q", ["q"])


def test_operator_that_writes_its_arguments_is_refused():
    with pytest.raises(tfi.UnsupportedError, match="functional"):
        shard(axpy, {"x": 0, "y": 0})


def test_operator_of_a_function_is_refused():
    plain = op(lambda x: x.clone(), "tfi_test::plain", schema="(Tensor x) -> Tensor", fake=torch.empty_like)
    with pytest.raises(tfi.UnsupportedError):
        shard(plain, {"x": 0})
