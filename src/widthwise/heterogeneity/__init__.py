"""Room: heterogeneity."""
