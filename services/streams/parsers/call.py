"""One tool call while it is read: nobody hears of it before its name is one of the offered tools."""

from collections.abc import Mapping

from schemas.output_format import NAME, Calls, Tool
from services.streams.parsers.deltas import CallHead
from services.streams.parsers.errors import Mismatch
from services.streams.parsers.ids import call_id
from services.streams.parsers.sink import Sink


class Call:
    """name, id: as far as they were read. seed: what an id is derived from where none is written."""

    def __init__(self, sink: Sink, calls: Calls, tools: Mapping[str, Tool], seed: str) -> None:
        self.name = ""
        self.id = ""
        self.index = ""
        self.is_announced = False
        self._sink = sink
        self._calls = calls
        self._tools = tools
        self._seed = seed
        self._held: list[str] = []

    @property
    def tool(self) -> Tool:
        """Raises Mismatch where the name is none of the offered tools."""
        tool = self._tools.get(self.name)
        if tool is None:
            raise Mismatch
        return tool

    def put(self, text: str) -> None:
        """More of the arguments."""
        if self.is_announced:
            self._sink.arguments(text)
        else:
            self._held.append(text)

    def announce(self) -> None:
        """From here on it is a call. Raises Mismatch for an unknown name."""
        if self.is_announced:
            return
        name = self.tool.name
        self.is_announced = True
        self._sink.call(CallHead(id=self.id or self._own_id(), name=name))
        for text in self._held:
            self._sink.arguments(text)
        self._held = []

    def has_arguments(self) -> bool:
        return self.is_announced or bool(self._held)

    def _own_id(self) -> str:
        if not self._calls.id_parts:
            return call_id(self._seed, self._sink.n_calls, self._calls.id_chars)
        words = {NAME: self.name, "index": self.index or str(self._sink.n_calls)}
        return "".join(words.get(part.kind, part.text) for part in self._calls.id_parts)
