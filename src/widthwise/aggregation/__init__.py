"""Room: aggregation."""
