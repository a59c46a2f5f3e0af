"""The KV cache of scheduler tests: notes what was done to it."""

from services.engine.scheduler import Batch, Scheduler, Sizes
from services.engine.seating import Need, Request, Seat


class RecordingMemory:
    """`can_cut`: whether a slot's cells can be dropped in part (a recurrent model's cannot)."""

    def __init__(self, *, can_cut: bool = True) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._can_cut = can_cut

    def keep(self, slot: int, n_tokens: int) -> int:
        n_kept = n_tokens if self._can_cut else 0
        self.calls.append(("keep", slot, n_kept))
        return n_kept

    def copy(self, source: int, target: int) -> None:
        self.calls.append(("copy", source, target))


class Bench:
    """A scheduler, its memory, and a model whose every token is 7."""

    def __init__(self, *, can_cut: bool = True, **sizes: int) -> None:
        self.memory = RecordingMemory(can_cut=can_cut)
        self.scheduler = Scheduler(Sizes(**{"n_slots": 4, **sizes}), self.memory)

    def admit(self, name: str, *needs: Need, id_slot: int = -1, can_reuse: bool = True) -> None:
        self.scheduler.admit(
            Request(generation_id=name, needs=needs, id_slot=id_slot, can_reuse=can_reuse)
        )

    def seat(self) -> dict[str, tuple[Seat, ...]]:
        """Seat all who can be."""
        seated: dict[str, tuple[Seat, ...]] = {}
        while (next_ := self.scheduler.seat_next()) is not None:
            seated[next_[0]] = next_[1]
        return seated

    def step(self) -> Batch | None:
        """Decode one batch and sample every row that is to be sampled."""
        batch = self.scheduler.plan()
        if batch is not None:
            for advance in self.scheduler.commit(batch):
                if advance.row is not None:
                    self.scheduler.feed(advance.slot, 7)
        return batch

    def steps(self, n: int) -> list[list[tuple[int, int]]]:
        """(slot, rows) of each part of the next n batches."""
        batches = [self.step() for _ in range(n)]
        return [[(p.slot, len(p.ids)) for p in batch.parts] if batch else [] for batch in batches]


def need(prompt: range | tuple[int, ...], choice: int = 0, **more: object) -> Need:
    return Need(choice=choice, prompt=tuple(prompt), **more)  # type: ignore[arg-type]
