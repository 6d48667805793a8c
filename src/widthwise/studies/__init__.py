"""Room: studies."""
