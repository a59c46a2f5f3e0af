"""`llamatape serve -hf` and `--model-url` against a hub of ours, and flags of the HTTP server, as a user runs it."""

import json
import re
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.hub import Hub, oid_of
from tests.support.processes import Session

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "models" / "stories-tiny.gguf"
TLS = ROOT / "tests" / "support" / "tls"
REPO = "user/stories-GGUF"
COMMAND = [sys.executable, "-P", "-m", "services.cli", "serve", "--port", "0", "-t", "1"]

Start = Callable[..., Session]


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub()
    found.repos[REPO] = {"stories-F16.gguf": MODEL.read_bytes()}
    found.files["tiny.gguf"] = MODEL.read_bytes()
    with found.running():
        yield found


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(ROOT),
        "MODEL_ENDPOINT": hub.url,
        "LLAMA_CACHE": str(tmp_path / "cache"),
        "HF_TOKEN": "hf_secret",
    }


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    sessions: list[Session] = []

    def begin(*flags: str) -> Session:
        line = [*COMMAND, "--data-dir", str(tmp_path / "data"), "-c", "1024", *flags]
        sessions.append(Session(line, folder=tmp_path, env=environment))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.__exit__()


def url_of(session: Session) -> str:
    found = re.search(r" at (https?://\S+)", session.wait_for("Try:", 60))
    assert found
    return found[1]


def failure(environment: dict[str, str], folder: Path, *flags: str) -> str:
    done = subprocess.run(
        [*COMMAND, "--data-dir", str(folder / "data"), *flags],
        env=environment | {"PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    *_, last = done.stderr.strip().splitlines()
    assert "Traceback" not in done.stderr
    return last


def test_a_repository_is_downloaded_served_and_recorded(
    start: Start, hub: Hub, tmp_path: Path
) -> None:
    session = start("-hf", f"{REPO}:f16")
    with httpx.Client(base_url=url_of(session), timeout=30) as client:
        model = client.get("/v1/models").json()["data"][0]
        assert (model["id"], model["aliases"]) == (f"{REPO}:f16", [f"{REPO}:f16"])
        assert client.get("/props").json()["model_path"].endswith("/stories-F16.gguf")
        answer = client.post("/completion", json={"prompt": "Once", "n_predict": 4})
        assert answer.json()["model"] == f"{REPO}:f16"
        told = client.options("/completion", headers={"Origin": "http://a.b"}).headers.raw
        assert (b"Access-Control-Allow-Origin", b"http://a.b") in told
    assert hub.asked[0].headers["authorization"] == "Bearer hf_secret"
    environments = (Path(f"/proc/{pid}/environ").read_bytes() for pid in session.members())
    assert not any(b"hf_secret" in text for text in environments)
    assert session.stop() == 0
    rows = sqlite3.connect(tmp_path / "data" / "llamatape.db")
    found = rows.execute("SELECT repo, file, size_bytes, digest, outcome FROM downloads").fetchall()
    rows.close()
    content = MODEL.read_bytes()
    assert found == [(REPO, "stories-F16.gguf", len(content), oid_of(content), "downloaded")]
    assert (tmp_path / "data" / "downloads.jsonl").read_text() == ""


def test_what_was_downloaded_serves_offline(
    start: Start, hub: Hub, environment: dict[str, str], tmp_path: Path
) -> None:
    flags = ("-mu", f"{hub.url}/files/tiny.gguf")
    assert "is not there" in failure(environment, tmp_path, *flags, "--offline")
    first = start(*flags)
    url_of(first)
    assert first.stop() == 0
    hub.asked.clear()
    second = start(*flags, "--offline", "-a", "mine")
    assert httpx.get(f"{url_of(second)}/v1/models").json()["data"][0]["id"] == "mine"
    assert hub.asked == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-hf user/none", "error: cannot find user/none at "),
        ("-hf user/stories-GGUF:Q4_0", "has no GGUF file of quant Q4_0; it has F16"),
        ("-hf user/stories-GGUF --offline", "is not in the cache"),
        ("-mu http://127.0.0.1:1/x.gguf", "error: cannot download x.gguf: "),
        ("-mu {hub}/files/none.gguf", "404"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line(
    environment: dict[str, str], hub: Hub, tmp_path: Path, flags: str, message: str
) -> None:
    assert message in failure(environment, tmp_path, *flags.format(hub=hub.url).split())


def test_what_failed_is_noted_for_the_next_start(
    environment: dict[str, str], hub: Hub, tmp_path: Path
) -> None:
    failure(environment, tmp_path, "-mu", f"{hub.url}/files/none.gguf")
    (line,) = (tmp_path / "data" / "downloads.jsonl").read_text().splitlines()
    receipt = json.loads(line)
    assert (receipt["outcome"], receipt["url"]) == ("failed", f"{hub.url}/files/none.gguf")


def test_https_below_a_prefix_with_files(start: Start, tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<p>hello")
    tls = ["--ssl-cert-file", str(TLS / "cert.pem"), "--ssl-key-file", str(TLS / "key.pem")]
    session = start("-m", str(MODEL), *tls, "--api-prefix", "/llm", "--path", str(tmp_path / "web"))
    url = url_of(session)
    assert url.startswith("https://127.0.0.1:")
    assert url.endswith("/llm")
    context = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
    with httpx.Client(verify=context, timeout=30) as client:
        assert client.get(f"{url}/health").json() == {"status": "ok"}
        assert client.get(f"{url}/").text == "<p>hello"
        assert client.get(f"{url}/index.html").text == "<p>hello"
        assert client.get(f"{url}/none.html").status_code == 404
        assert client.post(f"{url}/none").status_code == 404
        assert client.get(url.removesuffix("/llm") + "/health").status_code == 404
        answer = client.post(f"{url}/completion", json={"prompt": "Once", "n_predict": 2})
        assert answer.status_code == 200


def test_files_that_are_no_certificate_are_one_line(
    environment: dict[str, str], tmp_path: Path
) -> None:
    flags = ["--ssl-cert-file", str(TLS / "key.pem"), "--ssl-key-file", str(TLS / "key.pem")]
    message = failure(environment, tmp_path, "-m", str(MODEL), *flags)
    assert "are no certificate and its key" in message
