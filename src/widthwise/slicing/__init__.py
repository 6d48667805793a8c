"""Trace a module once into a width space; slice, scatter, mask and count any width of it."""

from widthwise.slicing.cost import Cost, cost
from widthwise.slicing.describe import GroupRow, group_edges, group_rows, group_table
from widthwise.slicing.payload import mask_bytes, num_values
from widthwise.slicing.selectors import SELECTORS, Moment, Selector
from widthwise.slicing.space import ChannelGroup, ParamLayout, WidthSpace, channels_at
from widthwise.slicing.tracing import Heads, trace

__all__ = [
    "SELECTORS",
    "ChannelGroup",
    "Cost",
    "GroupRow",
    "Heads",
    "Moment",
    "ParamLayout",
    "Selector",
    "WidthSpace",
    "channels_at",
    "cost",
    "group_edges",
    "group_rows",
    "group_table",
    "mask_bytes",
    "num_values",
    "trace",
]
