"""One process of the distributed tests: `python distributed_program.py RANK WORLD STORE`; exits 0 if all is well."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

sys.path.insert(0, str(Path(__file__).parent))
from torch_operators import norm_rows, product, scale, sum_rows

from tenferro_interop_torch import shard


class Model(nn.Module):
    """Two layers with a product by our kernel between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.weight = nn.Parameter(torch.arange(1.0, 5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return self.last(product(hidden, self.weight.expand_as(hidden)))


def whole_gradients(x: torch.Tensor) -> dict[str, torch.Tensor]:
    model = Model()
    model(x).square().mean().backward()
    return {name: p.grad for name, p in model.named_parameters()}


def check_training(rank: int, world: int) -> None:
    x = torch.rand(4 * world, 4, generator=torch.Generator().manual_seed(1))
    expected = whole_gradients(x)
    replicated = nn.parallel.DistributedDataParallel(Model())
    sharded = fully_shard(Model(), mesh=init_device_mesh("cpu", (world,)))
    for model, prefix in ((replicated, "module."), (sharded, "")):
        model(x[4 * rank : 4 * rank + 4]).square().mean().backward()
        for name, p in model.named_parameters():
            grad = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
            torch.testing.assert_close(grad, expected[name.removeprefix(prefix)])


def check_sharding(world: int) -> None:
    shard(scale, {"x": 0, "y": 0}, {"x": 1, "y": 1})
    shard(norm_rows, {"x": 0, "y": 0, "scale": 0})
    shard(sum_rows, {"x": 0, "y": 0})
    mesh = init_device_mesh("cpu", (world,))
    x, w = torch.rand(4, 6, generator=torch.Generator().manual_seed(2)), torch.rand(6)
    dist.broadcast(w, 0)
    for axis in (0, 1):
        y = scale(distribute_tensor(x, mesh, [Shard(axis)]), 2.0)
        assert y.placements == (Shard(axis),), y.placements
        assert torch.equal(y.full_tensor(), 2 * x)
    y, factor = norm_rows(distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(w, mesh, [Replicate()]))
    assert y.placements == factor.placements == (Shard(0),)
    torch.testing.assert_close(y.full_tensor(), norm_rows(x, w)[0])
    columns = sum_rows(distribute_tensor(x, mesh, [Shard(1)]))  # must be gathered first
    torch.testing.assert_close(columns.full_tensor(), x.sum(1))
    leaf = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
    scale(leaf, 3.0).sum().backward()
    assert torch.equal(leaf.grad.full_tensor(), torch.full_like(x, 3.0))


def main() -> None:
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    check_training(rank, world)
    check_sharding(world)
    dist.barrier()
    dist.destroy_process_group()
    print("well")


if __name__ == "__main__":
    main()
