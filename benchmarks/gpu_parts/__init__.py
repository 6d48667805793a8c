"""What ``benchmarks/gpu.py`` is made of."""
