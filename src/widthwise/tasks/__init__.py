"""Room: tasks."""
