"""Room: methods."""
