"""Projections: what a log looks like in a dialect. Pure functions of the log, event by event.

The same log gives the same bytes on any replica at any time; that is what offsets rest on. So a
change of bytes is a new version in `registry`, and the old one stays with its golden files.
"""

from services.streams.projections.projection import Projection, Result
from services.streams.projections.registry import VIEWS, dialect_of_view, projection_for

__all__ = ["VIEWS", "Projection", "Result", "dialect_of_view", "projection_for"]
