"""What durable runs cost: `python -m benchmarks.durable`."""
