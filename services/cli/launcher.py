"""`llamatape serve`: checks, then broker, api process and engine host on this machine, until stopped.

The launcher is the parent of everything and the engine host. It stops what it started in the order
engines, api process, broker, within 5 s; if it is killed, its children notice (see `lifeline`).
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from schemas.ids import new_short_id
from services.cli import checks, downloading, health, host, listen, settings
from services.cli.broker import (
    HOST,
    POLL_S,
    READY_TIMEOUT_S,
    BrokerPlan,
    find_nats_server,
    new_token,
)
from services.cli.errors import EX_CONFIG, CliError, ModelLoadError, StartError
from services.cli.flags import Values
from services.cli.lifeline import Lifeline
from services.cli.programs import PYTHON, Programs
from services.cli.supervisor import Exit, Supervised
from services.logs import event

log = logging.getLogger(__name__)

ENGINE_GRACE_S, API_GRACE_S, BROKER_GRACE_S = 2.2, 1.6, 0.8
PATIENCE_S = 0.5
"""Some senders signal a process and then its group: that is one wish, not two."""
MAX_START_EXITS = 3
"""So many exits of one program before the first request could be served end the start."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the checks have won: the lock, the sockets, the lifeline.

    plan: of our broker, None with one of others. python: how children are started (tests have their own).
    """

    values: Values
    folder: Path
    lock: checks.DataLock
    sockets: list[socket.socket]
    lifeline: Lifeline
    plan: BrokerPlan | None
    python: tuple[str, ...] = PYTHON


@contextlib.contextmanager
def prepared(values: Values) -> Generator[Ground]:
    """Check everything up front. Raises CliError; nothing was started then."""
    settings.check(values)
    if not settings.is_remote(values):
        _check_model(values)
    folder = settings.data_dir(values)
    binary = None if values["broker_url"] else find_nats_server()
    checks.prepare_data_dir(folder)
    with contextlib.ExitStack() as stack:
        lock = checks.DataLock.take(folder)
        stack.callback(lock.release)
        gateway = settings.gateway_settings(values)
        sockets = listen.open_sockets(
            gateway.host.split(","), gateway.port, is_shared=bool(values["reuse_port"])
        )
        stack.callback(listen.close_sockets, sockets)
        values = downloading.with_model(values, folder)
        _check_model(values)
        lifeline = Lifeline()
        stack.callback(lifeline.close)
        plan = binary and BrokerPlan(
            folder=folder / "broker",
            token=new_token(),
            binary=binary,
            is_durable=bool(values["durable"]),
        )
        yield Ground(
            values=values,
            folder=folder,
            lock=lock,
            sockets=sockets,
            lifeline=lifeline,
            plan=plan,
        )


def _check_model(values: Values) -> None:
    is_needed = not (values["simulate"] or settings.is_router(values))
    checks.check_model(settings.model_path(values), is_needed=is_needed)


class Launcher:
    """One run of `serve`. Event-loop thread only.

    announce: called once, with the address, when the first request could be served.
    """

    def __init__(self, ground: Ground, announce: Callable[[str], None]) -> None:
        self._ground = ground
        self._announce = announce
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_healthy = False
        self._asked_at = 0.0
        self._broker: Supervised | None = None
        self._api: Supervised | None = None
        self._host: host.EngineHost | None = None

    def stop(self) -> None:
        """Begin the orderly end; a second call, half a second later or more, kills what still runs."""
        now = asyncio.get_running_loop().time()
        if not self._ended.done():
            self._ended.set_result(None)
        elif now - self._asked_at >= PATIENCE_S:
            self._kill()
            return
        self._asked_at = now

    async def run(self) -> None:
        """Returns after `stop`, when everything is gone. Raises CliError if the start failed."""
        work = asyncio.create_task(self._serve(), name="serve")
        try:
            await asyncio.wait([work, self._ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            await asyncio.wait([work])
            await self._stop_all()
        if self._ended.done():
            self._ended.result()
        else:
            work.result()

    async def _serve(self) -> None:
        async with self._started():
            values, socket = self._ground.values, self._ground.sockets[0]
            prefix = settings.gateway_settings(values).api_prefix
            is_tls = settings.tls_files(values) is not None
            await health.wait(socket, prefix=prefix, is_tls=is_tls)
            self._is_healthy = True
            self._announce(listen.url_of(socket, is_tls=is_tls) + prefix)
            await self._ended

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncGenerator[None]:
        values = dict(self._ground.values)
        values["data_dir"] = str(self._ground.folder)
        values["host_id"] = values["host_id"] or new_short_id("h")
        values["drain_grace"] = self._drain_grace_s
        broker = asyncio.create_task(self._start_broker(values))
        from services.bus.connection import connect  # takes as long as the broker's start

        await broker
        programs = self._programs(values)
        self._api = Supervised(
            programs.api(s.fileno() for s in self._ground.sockets), self._on_exit
        )
        await self._api.start()
        self._host = host.EngineHost(str(values["host_id"]), programs.engine, self._on_exit)
        bus = await connect(settings.bus_settings(values), name="launcher")
        try:
            async with host.serving(bus, self._host):
                yield
        finally:
            await bus.close()

    def _programs(self, values: Values) -> Programs:
        return Programs(
            values=values,
            logs_dir=self._ground.folder / "logs",
            lifeline_fd=self._ground.lifeline.fd,
            inherited_fds=(self._ground.lock.fd,),
            python=self._ground.python,
        )

    async def _start_broker(self, values: Values) -> None:
        """Start our broker, if it is ours, and put its address into `values`."""
        plan = self._ground.plan
        if plan is None:
            return
        plan.forget_ports()
        program = self._programs(values).broker(plan, plan.write_config(0))
        self._broker = Supervised(program, self._on_exit)
        await self._broker.start()
        port = await self._broker_port(plan, self._broker)
        plan.write_config(port)  # a restarted broker must be where its clients look for it
        values |= {"broker_url": f"nats://{HOST}:{port}", "broker_token": plan.token}

    async def _broker_port(self, plan: BrokerPlan, broker: Supervised) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_TIMEOUT_S):
                while True:
                    if broker.pid and (port := plan.port_of(broker.pid)):
                        return port
                    await asyncio.sleep(POLL_S)
        raise StartError(f"nats-server is not ready after {READY_TIMEOUT_S:g} s")

    def _on_exit(self, exit_: Exit) -> bool:
        """Start it again? Not if the model cannot be loaded, nor over and over before it ever served."""
        if self._ended.done():
            return False
        error = None if self._is_healthy else _start_failure(exit_)
        if error is not None:
            self._ended.set_exception(error)
        return error is None

    async def _stop_all(self) -> None:
        if self._host is not None:
            await self._host.stop(ENGINE_GRACE_S + self._drain_grace_s)
        if self._api is not None:
            await self._api.stop(API_GRACE_S + self._drain_grace_s)
        if self._broker is not None:
            await self._broker.stop(BROKER_GRACE_S)

    @property
    def _drain_grace_s(self) -> float:
        """None is given where nothing is said: when all stops, the next start continues what ran."""
        values = self._ground.values
        return 0.0 if values["drain_grace"] is None else settings.drain_grace(values)

    def _kill(self) -> None:
        event(log, "killed", level=logging.WARNING, reason="second signal")
        for part in (self._host, self._api, self._broker):
            if part is not None:
                part.kill()


def _start_failure(exit_: Exit) -> CliError | None:
    if exit_.code == EX_CONFIG and exit_.name.startswith("engine"):
        return ModelLoadError(exit_.reason)
    if exit_.code > 0 and exit_.n >= MAX_START_EXITS:
        return StartError(f"{exit_.name} does not start: {exit_.reason}")
    return None


async def run(ground: Ground, announce: Callable[[str], None]) -> None:
    """Run a launcher until a signal stops it. Raises CliError if the start failed."""
    launcher = Launcher(ground, announce)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a shell's background job
            loop.add_signal_handler(number, launcher.stop)
    await launcher.run()
