"""`llamatape serve` without a model: it serves what needs none, and ends as any other."""

import shutil
from pathlib import Path

import httpx

from tests.support.platform import ROOT, SERVE, TINY, client, url_of
from tests.support.processes import Session


def test_it_starts_lists_and_stops(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(TINY, folder / "tiny.gguf")
    line = [
        *SERVE,
        "--data-dir",
        str(tmp_path / "data"),
        "--port",
        "0",
        "--models-dir",
        str(folder),
    ]
    environment = {"PYTHONPATH": str(ROOT), "LLAMA_CACHE": str(tmp_path / "cache")}
    with Session(line, folder=tmp_path, env=environment) as session:
        with client(url_of(session)) as http:
            _try(http)
        assert session.stop() == 0
        assert session.wait_until_alone(5) == {}


def _try(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    listed = http.get("/v1/models").json()["data"]
    assert [model["id"] for model in listed] == ["tiny"]
    assert "<!doctype html>" in http.get("/").text
    body = {"model": "none", "messages": [{"role": "user", "content": "hi"}]}
    refused = http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "model 'none' not found"
