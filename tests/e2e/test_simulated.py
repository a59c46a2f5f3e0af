"""The whole platform without a model: what load tests and drills run on, and what it counts."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.platform import ROOT, SERVE, client, url_of
from tests.support.processes import Session

BODY = {"prompt": "once upon a time", "n_predict": 40, "seed": 7, "ignore_eos": True}


def simulated(folder: Path, simulation: str, *flags: str) -> Session:
    line = [*SERVE, "--simulate", simulation, "--data-dir", str(folder / "data"), "--port", "0"]
    return Session([*line, *flags], folder=folder, env={"PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("simulated")
    with simulated(folder, "tokens_per_s=200,eos_after=60", "--metrics", "-np", "2") as session:
        with client(url_of(session)) as a_client:
            yield a_client
        assert session.stop() == 0


def metrics(http: httpx.Client) -> dict[str, float]:
    response = http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert int(response.headers["process-start-time-unix"]) > 0
    lines = [line for line in response.text.splitlines() if line[:1] != "#" and "{" not in line]
    return {name: float(value) for name, value in (line.split(" ", 1) for line in lines)}


def test_it_says_the_same_for_the_same_prompt_and_seed(http: httpx.Client) -> None:
    first, again = (http.post("/completion", json=BODY).json() for _ in range(2))
    other = http.post("/completion", json=BODY | {"seed": 8}).json()
    assert first["content"] == again["content"] != other["content"]
    assert first["timings"]["predicted_n"] == 40


def test_a_chat_ends_by_itself(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    answer = http.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 61


def test_tokens_go_there_and_back(http: httpx.Client) -> None:
    tokens = http.post("/tokenize", json={"content": "the boat é"}).json()["tokens"]
    assert http.post("/detokenize", json={"tokens": tokens}).json() == {"content": "the boat é"}


def test_what_was_done_is_counted(http: httpx.Client) -> None:
    before = metrics(http)
    timings = [http.post("/completion", json=BODY).json()["timings"] for _ in range(2)]
    after = metrics(http)

    def grown(name: str) -> float:
        return after[f"llamacpp:{name}"] - before[f"llamacpp:{name}"]

    assert grown("tokens_predicted_total") == 80
    assert grown("prompt_tokens_total") == sum(t["prompt_n"] for t in timings)
    assert grown("prompt_tokens_cached_total") == sum(t["cache_n"] for t in timings)
    assert after["llamacpp:n_tokens_max"] >= 40
    assert after["llamacpp:requests_processing"] == after["llamacpp:requests_deferred"] == 0
    assert 100 < after["llamacpp:predicted_tokens_seconds"] < 210
    assert after["llamatape_engines"] == 1
    assert after["llamatape_live_subscribers"] == 0


def test_a_second_look_has_nothing_to_average(http: httpx.Client) -> None:
    metrics(http)
    assert metrics(http)["llamacpp:predicted_tokens_seconds"] == 0


def test_a_decoder_that_dies_again_and_again_is_a_drill(tmp_path: Path) -> None:
    """It lives for 25 tokens; the answer needs 60, and reads as if nothing had happened."""
    long = BODY | {"n_predict": 60}
    texts: list[str] = []
    for simulation in ("tokens_per_s=200", "tokens_per_s=200,fail_after=25"):
        folder = tmp_path / simulation[-6:]
        folder.mkdir()
        with simulated(folder, simulation) as session, client(url_of(session)) as http:
            answer = http.post("/completion", json=long).json()
            texts.append(answer["content"])
            assert answer["tokens_predicted"] == 60
            assert http.get("/metrics").status_code == 501
    assert texts[0] == texts[1]
