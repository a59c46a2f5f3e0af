"""The language that all services speak: subjects, tasks, events, RPC, lifecycle, errors, codec.

Nothing here does I/O, reads a clock or imports a service. Message classes are frozen structs; their
wire form is MessagePack (`schemas.codec`). Only optional fields are ever added; a change of meaning
is a new event version with an upcast.
"""
