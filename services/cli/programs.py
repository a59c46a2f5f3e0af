"""What the launcher runs: command lines and environments. Flags travel as variables, never in argv."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.rpc import StartEngine
from services.cli import lifeline, listen
from services.cli.broker import BrokerPlan, environment
from services.cli.flags import BUS, LAUNCHER, Values
from services.cli.parse import own_variables, values_to_env
from services.cli.supervisor import Program

PYTHON = (sys.executable, "-P", "-m", "services.cli")
UNSAFE = r"[^A-Za-z0-9_-]+"
_ENGINE_VARIABLE = "LLAMATAPE_ENGINE_ID"


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Makes the programs of one launcher.

    values: its flags, with broker and host id filled in. inherited_fds: descriptors that every
    program keeps open (the data directory's lock). python: how to start a service.
    """

    values: Values
    logs_dir: Path
    lifeline_fd: int
    inherited_fds: tuple[int, ...] = ()
    python: tuple[str, ...] = PYTHON

    def broker(self, plan: BrokerPlan, config: Path) -> Program:
        return Program(
            name="broker",
            command=tuple(plan.command(config)),
            env=environment(_foreign(os.environ)),
            log_file=self.logs_dir / "broker.log",
            is_shown=bool(self.values["verbose"]) and self._may_show,
            pass_fds=self.inherited_fds,
        )

    def api(self, listener_fds: Iterable[int]) -> Program:
        fds = tuple(listener_fds)
        env = values_to_env(self._told) | {listen.VARIABLE: ",".join(map(str, fds))}
        return self._service("api", "api", env, is_shown=True, fds=fds)

    def engine(self, order: StartEngine) -> Program:
        """An order may set flags, and nothing else of the environment."""
        allowed = own_variables()
        env = values_to_env(self._told, [BUS, LAUNCHER])
        env |= {name: text for name, text in order.env.items() if name in allowed}
        env[_ENGINE_VARIABLE] = order.engine
        is_shown = bool(self.values["verbose"])
        return self._service("engine", f"engine {order.engine}", env, is_shown=is_shown)

    @property
    def _may_show(self) -> bool:
        return not self.values["log_disable"]

    @property
    def _told(self) -> Values:
        """The values for children: with the log switched off they still say why they failed."""
        return (
            self.values if self._may_show else self.values | {"log_disable": False, "log_file": ""}
        )

    def _service(
        self,
        command: str,
        name: str,
        env: dict[str, str],
        *,
        is_shown: bool,
        fds: tuple[int, ...] = (),
    ) -> Program:
        return Program(
            name=name,
            command=(*self.python, command),
            env=_foreign(os.environ) | env | {lifeline.VARIABLE: str(self.lifeline_fd)},
            log_file=self.logs_dir / f"{re.sub(UNSAFE, '-', name)}.log",
            is_shown=is_shown and self._may_show,
            pass_fds=(self.lifeline_fd, *self.inherited_fds, *fds),
        )


def _foreign(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without our flags: a child sees exactly those that it is given."""
    ours = own_variables() | {lifeline.VARIABLE, listen.VARIABLE}
    return {name: text for name, text in environment.items() if name not in ours}
