"""What Google Cloud tells a container."""

import pytest

from services.cli.errors import UsageError
from services.cli.gcp import gcp_container

MODE = {"AIP_MODE": "PREDICTION"}


def test_elsewhere_there_is_none() -> None:
    assert gcp_container({}) is None
    assert gcp_container({"AIP_MODE": "TRAINING", "AIP_HTTP_PORT": "x"}) is None


def test_defaults() -> None:
    assert gcp_container(MODE) == (8080, "/predict", "")


def test_paths_begin_with_a_slash() -> None:
    told = {"AIP_HTTP_PORT": "81", "AIP_PREDICT_ROUTE": "p", "AIP_HEALTH_ROUTE": "/h"}
    assert gcp_container(MODE | told) == (81, "/p", "/h")


@pytest.mark.parametrize("port", ["x", "-1", "99999", "٣"])
def test_a_bad_port_is_named(port: str) -> None:
    with pytest.raises(UsageError, match="AIP_HTTP_PORT"):
        gcp_container(MODE | {"AIP_HTTP_PORT": port})
