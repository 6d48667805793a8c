"""Imported by the process that forks workers: what they all need, and share until somebody writes to it."""

import gc

import widthwise.engine.executors.process  # noqa: F401

# The collector writes to every object that it looks at, and a page that is written to is copied.
gc.collect()
gc.freeze()
