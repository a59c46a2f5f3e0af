"""One row of the table of flags, and how rows are written."""

from dataclasses import dataclass
from math import inf
from typing import Literal

Value = bool | int | float | str | tuple[str, ...] | None
Values = dict[str, Value]
"""By `Flag.key`; None means that the service chooses."""

Kind = Literal["int", "float", "text", "list", "texts", "bool", "onoff", "choice"]
"""list: comma-separated. texts: one per use of the flag, a JSON list in the environment. bool: takes
no value on the command line; onoff: does. choice: on, off, auto or what `choices` names."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag. names, negatives: spellings, the last of `names` gives the key.

    env: the variable that sets it. low, high: bounds of a number, inclusive. metavar: empty for a
    bool. services: who uses it, the first is its section of the help text. is_secret: never shown,
    never in an argument vector of ours. is_built: whether what it asks for exists; where not, every
    value but the default is refused. instead: what to use in its place, for one that is no more.
    """

    names: tuple[str, ...]
    negatives: tuple[str, ...]
    env: str
    kind: Kind
    default: Value
    help: str
    services: tuple[str, ...]
    metavar: str
    low: float
    high: float
    is_secret: bool
    choices: tuple[str, ...]
    is_built: bool
    instead: str

    @property
    def key(self) -> str:
        return self.names[-1].lstrip("-").replace("-", "_").replace(".", "_")

    @property
    def negative_env(self) -> str:
        """llama-server's second variable of an on/off pair; empty where there is none."""
        return self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") if self.negatives else ""


ENGINE, GATEWAY, MODELS, BUS, LAUNCHER = "engine", "gateway", "models", "bus", "launcher"
ARCHIVE = "archive"
"""Flags of the processes that archive: streams, and all in one."""
MODEL = "model"
"""Flags that say what is served: the engine, the gateway and the models service need them."""
SAMPLING = "sampling"
"""Parameters of a request that sets none; the engine's."""

SECTIONS = {
    MODEL: "Model",
    ENGINE: "Engine",
    SAMPLING: "Sampling (where a request says nothing)",
    GATEWAY: "HTTP",
    LAUNCHER: "Process",
    BUS: "Broker",
    MODELS: "Control plane",
    ARCHIVE: "Archive",
}
ON_OFF_AUTO = ("on", "off", "auto")
NOT_YET = "not supported yet"

I32, U32, U16 = 2**31 - 1, 2**32 - 1, 2**16 - 1


def flag(
    names: str,
    env: str,
    kind: Kind,
    default: Value,
    services: str,
    help: str,  # noqa: A002
    *,
    metavar: str = "",
    low: float = -inf,
    high: float = inf,
    is_secret: bool = False,
    choices: tuple[str, ...] = (),
    is_built: bool = True,
    instead: str = "",
) -> Flag:
    """A row. names: separated by blanks; what follows a slash switches the flag off."""
    positive, _, negative = names.partition(" / ")
    if kind == "int":
        low, high = max(low, -I32), min(high, 2.0**62)
    return Flag(
        names=tuple(positive.split()),
        negatives=tuple(negative.split()),
        env=env,
        kind=kind,
        default=default,
        help=help if is_built or instead else f"{help} ({NOT_YET})",
        services=tuple(services.split()),
        metavar=metavar or _metavar(kind, choices),
        low=low,
        high=high,
        is_secret=is_secret,
        choices=choices,
        is_built=is_built and not instead,
        instead=instead,
    )


def _metavar(kind: Kind, choices: tuple[str, ...]) -> str:
    if kind == "choice":
        return "{" + ",".join(choices) + "}"
    return {"bool": "", "int": "N", "float": "N", "onoff": "{on,off}"}.get(kind, "TEXT")
