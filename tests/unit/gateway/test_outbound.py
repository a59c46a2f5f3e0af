"""Where a proxied request goes, and which headers go along."""

import pytest

from schemas.errors import RequestError
from services.gateway.cors_proxy import kept, passed_on
from services.gateway.outbound import parse_target


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://a.b", "a.b", "/"),
        ("https://a.b:443/x?y=1&z=%20", "a.b", "/x?y=1&z=%20"),
        ("http://a.b:8080?q", "a.b:8080", "/?q"),
        ("http://[::1]:3000/mcp#part", "[::1]:3000", "/mcp"),
    ],
)
def test_targets(url: str, authority: str, path: str) -> None:
    target = parse_target(url)
    assert (target.authority, target.path) == (authority, path)
    assert parse_target(target.url) == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.b/x",
        "file:///etc/passwd",
        "ftp://a.b",
        "http://",
        "http://a.b:x/",
        "http://[::1",
        "http://user:secret@a.b/",
        "http://user@a.b/",
        "http://a.b/two words",
        "http://a.b/\u00e9",
    ],
)
def test_what_is_no_target(url: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_target(url)
    assert refused.value.problem.status == 400
    assert "secret" not in refused.value.problem.message


def test_only_named_headers_go_to_the_target() -> None:
    sent = {
        "authorization": "Bearer ours",
        "cookie": "a=b",
        "x-api-key": "ours",
        "x-llama-server-proxy-header-authorization": "Bearer theirs",
        "x-llama-server-proxy-header-mcp-session-id": "7",
        "x-llama-server-proxy-header-": "nothing",
        "x-llama-server-proxy-header-host": "elsewhere",
        "x-llama-server-proxy-header-content-length": "9999",
    }
    assert passed_on(sent.items()) == (("authorization", "Bearer theirs"), ("mcp-session-id", "7"))


def test_the_connections_headers_stay_with_the_connection() -> None:
    came = {
        "content-type": "text/plain",
        "mcp-session-id": "7",
        "content-length": "3",
        "transfer-encoding": "chunked",
        "access-control-allow-origin": "*",
        "keep-alive": "timeout=5",
    }
    assert dict(kept(came.items())) == {"content-type": "text/plain", "mcp-session-id": "7"}
