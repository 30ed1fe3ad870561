"""Benchmarks: host cost of launches beside a bare C loop and the peers.  `python -m benchmarks` runs all of them."""
