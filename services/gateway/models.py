"""The model that this gateway serves: where it stands, and what its engines say of it."""

import asyncio
import logging

from schemas import codec, subjects
from schemas.errors import Problem, RequestError, SchemaError
from schemas.lifecycle import FAILED, LOADED, SLEEPING, ModelStatus
from schemas.rpc import DescribeModel, ModelDescription
from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.kv import Bucket, Watch
from services.bus.rpc import ask
from services.gateway import errors
from services.gateway.config import GatewaySettings

log = logging.getLogger(__name__)

DESCRIBE_RETRY_S = 0.2
SERVING = (LOADED, SLEEPING)


class ServedModel:
    """The one model of single-model mode. As in llama-server the `model` of a request is not looked at.

    status: the last value of the models bucket. description: as of the last load; asked for in the
    background, so that no request waits for it. Event-loop thread only.
    """

    def __init__(self, bus: Bus, settings: GatewaySettings) -> None:
        self._bus = bus
        self._settings = settings
        self._watch: Watch | None = None
        self._describing: asyncio.Task[None] | None = None
        self.status: ModelStatus | None = None
        self.description: ModelDescription | None = None

    async def start(self) -> None:
        """Watch the models bucket. Raises BusUnavailable."""
        bucket = Bucket(self._bus, subjects.MODELS_BUCKET)
        self._watch = await bucket.watch(self._on_status, self._settings.model_key)

    async def stop(self) -> None:
        """Idempotent."""
        if self._describing is not None:
            self._describing.cancel()
        if self._watch is not None:
            await self._watch.stop()

    @property
    def was_loaded(self) -> bool:
        """Whether there has been a first load: from then on requests are taken."""
        return self.description is not None

    @property
    def is_loaded(self) -> bool:
        """Whether the model serves right now."""
        return self.was_loaded and self._serves

    def loaded(self) -> ModelDescription:
        """The description. Raises RequestError (503) before the first load."""
        if self.description is None:
            raise RequestError(self.problem())
        return self.description

    def problem(self) -> Problem:
        """Why the model does not serve."""
        if self.status is not None and self.status.status == FAILED:
            return errors.load_failed(self.status.error)
        return errors.loading()

    def _on_status(self, _key: str, value: bytes | None) -> None:
        try:
            status = None if value is None else codec.decode(value, ModelStatus)
        except SchemaError:
            log.exception("action=model_status_unreadable model=%s", self._settings.model_key)
            return
        if status == self.status and self.was_loaded:
            return
        self.status = status
        if self._serves and (self._describing is None or self._describing.done()):
            self._describing = asyncio.create_task(self._describe())

    @property
    def _serves(self) -> bool:
        return self.status is not None and self.status.status in SERVING

    async def _describe(self) -> None:
        """Ask the engines until one answers, or until the model does not serve any more."""
        subject = subjects.engine_rpc(self._settings.model_key)
        asked: ModelStatus | None = None
        while self._serves and asked != self.status:
            asked = self.status
            try:
                self.description = await ask(self._bus, subject, DescribeModel(), ModelDescription)
            except (BusError, RequestError, SchemaError) as error:
                log.info("action=describe_retry model=%s error=%r", self._settings.model_key, error)
                asked = None
                await asyncio.sleep(DESCRIBE_RETRY_S)
