"""PyTorch adapter of tenferro_interop: operators, streams, sharding, tensor state, version counters."""

from ._op import Op as Op
from ._op import op as op
from ._producer import PRODUCER as PRODUCER
from ._sharding import shard as shard
from ._streams import external_stream as external_stream

__all__ = ["PRODUCER", "Op", "external_stream", "op", "shard"]
