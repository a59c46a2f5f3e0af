"""The archive as readers in any process see it: asked over the bus. Knows no SQL."""

from typing import NoReturn

from schemas import subjects
from schemas.events import decode_entry
from schemas.rpc import ABSENT, ERASED, KEPT, ArchivePiece, ReadArchive
from services.bus.connection import Bus
from services.bus.ended import has_archivers
from services.bus.errors import BusUnavailable, NoResponder
from services.bus.log import Entry
from services.bus.rpc import ask
from services.streams.archive.summary import CODEC, unpack
from services.streams.errors import StreamBroken, StreamGone

TIMEOUT_S = 10.0


class ArchiveClient:
    """Reads archived logs. Event-loop thread only."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self, generation_id: str) -> list[Entry] | None:
        """All entries of an archived log, None where it is not archived, or where there is no archive.

        Raises StreamGone, StreamBroken, BusUnavailable (there is an archive, and it does not answer),
        RequestError (its database does not).
        """
        try:
            packed = await self._packed(generation_id)
        except NoResponder as error:
            if not await has_archivers(self._bus):
                return None
            raise BusUnavailable("no archiver is there; start `llamatape streams`") from error
        return None if packed is None else _entries(packed)

    async def _packed(self, generation_id: str) -> bytes | None:
        pieces, n_read = list[bytes](), 0
        while True:
            piece = await self._ask(ReadArchive(generation_id=generation_id, offset=n_read))
            if piece.state == ABSENT:
                return None
            if piece.state != KEPT:
                _refuse(piece)
            if piece.codec != CODEC:
                raise StreamBroken(f"a newer build archived it as {piece.codec!r}")
            pieces.append(piece.data)
            n_read += len(piece.data)
            if n_read >= piece.n_bytes or not piece.data:
                return b"".join(pieces)

    async def _ask(self, question: ReadArchive) -> ArchivePiece:
        subject = subjects.ARCHIVE_RPC
        return await ask(self._bus, subject, question, ArchivePiece, timeout_s=TIMEOUT_S)


def _refuse(piece: ArchivePiece) -> NoReturn:
    why = "was erased" if piece.state == ERASED else "was not to be kept, and its time is over"
    raise StreamGone(f"What this generation said {why}.", piece.caller)


def _entries(packed: bytes) -> list[Entry]:
    entries, previous = list[Entry](), 0
    for seq, data in unpack(packed):
        entries.append(Entry(seq, previous, decode_entry(data), data))
        previous = seq
    return entries
