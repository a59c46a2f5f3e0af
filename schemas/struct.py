"""The bases of every message class. Subclasses say `kw_only=True` themselves: it is not inherited."""

import msgspec


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A frozen value with named fields; unknown fields are ignored, defaults are not sent."""


class TaggedMessage(Message, frozen=True, tag_field="type", tag=True):
    """A message whose wire form names its class, so that unions can be told apart."""
