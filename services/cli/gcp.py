"""The variables by which Google Cloud tells a container how it will be asked (Vertex AI).

https://docs.cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements
"""

from collections.abc import Mapping
from typing import NamedTuple

from services.cli.errors import UsageError

PREDICTION = "PREDICTION"
DEFAULT_PORT = 8080
DEFAULT_ROUTE = "/predict"
MAX_PORT = 65535


class GcpContainer(NamedTuple):
    """port: to listen on, whatever --port says. predict, health: paths; health "" for none of its own."""

    port: int
    predict: str
    health: str


def gcp_container(environment: Mapping[str, str]) -> GcpContainer | None:
    """What the variables say; None outside of Google Cloud's prediction service. Raises UsageError."""
    if environment.get("AIP_MODE") != PREDICTION:
        return None
    return GcpContainer(
        port=_port(environment.get("AIP_HTTP_PORT") or str(DEFAULT_PORT)),
        predict=_path(environment.get("AIP_PREDICT_ROUTE") or DEFAULT_ROUTE),
        health=_path(environment.get("AIP_HEALTH_ROUTE") or ""),
    )


def _path(text: str) -> str:
    return text if not text or text.startswith("/") else f"/{text}"


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_PORT):
        raise UsageError(f"AIP_HTTP_PORT: {text!r} is no port")
    return int(text)
