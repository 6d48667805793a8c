"""Room: slicing."""
