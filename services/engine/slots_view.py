"""What GET /slots shows: the slots of this engine as its decoder's outputs tell them. A fold."""

from dataclasses import dataclass

import msgspec

from schemas.params import Params
from schemas.rpc import SlotDescription
from services.engine.protocol import (
    Broken,
    ContextShifted,
    Emitted,
    Ended,
    Output,
    PromptProgress,
    SlotActed,
    SlotsStarted,
)


@dataclass
class _Place:
    """Where a running choice sits. n_emitted: tokens of all attempts so far. n_discarded: by shifts."""

    slot: int
    n_emitted: int = 0
    n_processed: int = 0
    n_discarded: int = 0
    has_new_line: bool = False


class SlotsView:
    """Event-loop thread only. n_ctx_slot: tokens per slot."""

    def __init__(self, n_slots: int, n_ctx_slot: int) -> None:
        self._slots = [SlotDescription(id=i, n_ctx=n_ctx_slot) for i in range(n_slots)]
        self._places: dict[tuple[str, int], _Place] = {}

    def reset(self, n_slots: int, n_ctx_slot: int) -> None:
        """Start anew: the decoder did."""
        self.__init__(n_slots, n_ctx_slot)

    def describe(self) -> tuple[SlotDescription, ...]:
        return tuple(self._described(slot) for slot in self._slots)

    def on_started(self, output: SlotsStarted, params: Params) -> None:
        for start in output.choices:
            self._places[output.generation_id, start.choice] = _Place(start.slot)
            self._slots[start.slot] = msgspec.structs.replace(
                self._slots[start.slot],
                is_processing=True,
                generation_id=output.generation_id,
                n_prompt=start.n_prompt,
                n_cached=start.n_cached,
                n_processed=start.n_cached,
                n_decoded=0,
                has_new_line=False,
                n_held=start.n_cached,
                n_remain=params.limits.n_predict,
                params=params,
            )

    def on_output(self, output: Output) -> None:
        """The hot path: a look-up and two attribute writes per token."""
        match output:
            case Emitted():
                place = self._places.get((output.generation_id, output.choice))
                if place is not None:
                    place.n_emitted = output.index + 1
                    place.has_new_line = place.has_new_line or "\n" in output.text
            case PromptProgress():
                place = self._places.get((output.generation_id, output.choice))
                if place is not None:
                    place.n_processed = output.n_processed
            case ContextShifted():
                place = self._places.get((output.generation_id, output.shift.choice))
                if place is not None:
                    place.n_discarded += output.shift.n_discard
            case SlotActed():
                self._slots[output.slot] = msgspec.structs.replace(
                    self._slots[output.slot], n_held=output.n_held
                )
            case Ended():
                self._free((output.generation_id, output.end.choice))
            case Broken():
                self.forget(output.generation_id)
            case _:
                pass

    def forget(self, generation_id: str) -> None:
        """The generation is gone; its slots are free."""
        for key in [key for key in self._places if key[0] == generation_id]:
            self._free(key)

    def _free(self, key: tuple[str, int]) -> None:
        place = self._places.get(key)
        if place is not None:
            self._slots[place.slot] = _idle(self._described(self._slots[place.slot]))
            del self._places[key]

    def _described(self, slot: SlotDescription) -> SlotDescription:
        for (generation_id, _), place in self._places.items():
            if place.slot == slot.id and generation_id == slot.generation_id:
                return _with_place(slot, place)
        return slot


def _idle(slot: SlotDescription) -> SlotDescription:
    """As llama-server resets a slot: it shows what it was asked last, and what it holds."""
    return msgspec.structs.replace(
        slot,
        is_processing=False,
        n_processed=0,
        n_cached=0,
        n_decoded=0,
        n_remain=-1,
        has_new_line=False,
    )


def _with_place(slot: SlotDescription, place: _Place) -> SlotDescription:
    is_generating = place.n_emitted > 0
    limit = slot.params.limits.n_predict if slot.params is not None else -1
    n_done = slot.n_prompt if is_generating else max(place.n_processed, slot.n_processed)
    return msgspec.structs.replace(
        slot,
        n_decoded=place.n_emitted,
        n_processed=n_done,
        n_remain=limit - place.n_emitted if limit >= 0 else -1,
        has_new_line=place.has_new_line,
        n_held=n_done + max(0, place.n_emitted - 1) - place.n_discarded,
    )
