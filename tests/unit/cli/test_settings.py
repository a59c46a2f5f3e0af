"""From values to the settings of each service."""

from pathlib import Path

import pytest

from schemas import subjects
from schemas.params import RANDOM_SEED, Output, Params
from services.cli import engine as engine_command
from services.cli import settings
from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.parse import parse
from services.engine.config import EngineSettings


def values(*arguments: str) -> Values:
    return parse(["-m", "/models/a.gguf", *arguments], {})


def engine(*arguments: str) -> EngineSettings:
    return settings.engine_settings(values(*arguments))


def test_the_file_names_the_model() -> None:
    assert settings.gateway_settings(values()).model_name == "a.gguf"
    assert settings.gateway_settings(values()).aliases == ()


def test_the_first_alias_in_order_names_the_model() -> None:
    gateway = settings.gateway_settings(values("-a", "b,a,b", "--tags", "y,x"))
    assert (gateway.model_name, gateway.aliases, gateway.tags) == ("a", ("a", "b"), ("x", "y"))


def test_every_service_computes_the_same_key() -> None:
    given = values("-a", "tiny")
    keys = {
        settings.gateway_settings(given).model_key,
        settings.models_settings(given).model_key,
        settings.engine_settings(given).model_key,
    }
    assert keys == {subjects.model_key("tiny")}


def test_an_order_rebuilds_the_engine_settings() -> None:
    given = values("-c", "512", "-np", "2", "--temp", "0", "-a", "x", "--no-jinja", "-s", "7", "-v")
    ordered = parse([], dict(settings.models_settings(given).engine_env))
    rebuilt = settings.engine_settings(ordered | {"engine_id": "e"})
    assert rebuilt == settings.engine_settings(given | {"engine_id": "e"})


def test_orders_hold_no_secrets() -> None:
    given = values("--api-key", "sesame", "--broker-token", "hush", "--database-url", "db://pw@x")
    text = str(settings.models_settings(given).engine_env)
    assert not any(secret in text for secret in ("sesame", "hush", "pw"))


def test_a_name_without_a_model() -> None:
    with pytest.raises(UsageError, match="name a GGUF file with -m"):
        settings.gateway_settings(parse(["-a", "name"], {}))


def test_without_a_model_requests_name_theirs(tmp_path: Path) -> None:
    nothing = parse(["--models-dir", str(tmp_path)], {})
    gateway, models = settings.gateway_settings(nothing), settings.models_settings(nothing)
    assert (gateway.is_router, gateway.model_name) == (True, "")
    assert (models.is_router, models.models_dir) == (True, str(tmp_path))
    settings.check(nothing)
    with pytest.raises(UsageError, match="name a GGUF file with -m"):
        engine_command.run(nothing)
    for named in (["-m", "x.gguf"], ["--simulate", "tokens_per_s=1"], ["-hf", "user/model"]):
        assert not settings.is_router(parse(named, {}))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("-hf user/model:Q4_0", "user/model:Q4_0"),
        ("-hf user/model:Q4_0 -a mine", "mine"),
        ("-hf user/model -hff x/y.gguf", "user/model"),
        ("-mu http://h/a/b%20c.gguf?x=1#y", "b c.gguf"),
        ("-mu http://h/a/b.gguf -m /m/mine.gguf", "mine.gguf"),
    ],
)
def test_the_name_of_a_model_from_elsewhere(line: str, name: str) -> None:
    given = parse(line.split(), {})
    assert settings.is_remote(given)
    assert settings.model_name(given) == name
    settings.check(given)


def test_the_token_of_a_hub_stays_here() -> None:
    given = parse(["-hf", "user/model", "-hft", "hf_secret"], {})
    assert "hf_secret" not in str(settings.models_settings(given))


def test_http_flags_reach_the_gateway(tmp_path: Path) -> None:
    line = (
        f"--props --api-prefix /llm/ --path {tmp_path} --cors-origins http://a.b --cors-methods GET"
    )
    gateway = settings.gateway_settings(values(*line.split(), "--ui-config", '{"a": 1}'))
    assert gateway.has_props_post
    assert (gateway.api_prefix, gateway.static_dir) == ("/llm", str(tmp_path))
    assert (gateway.cors.origins, gateway.cors.methods) == ("http://a.b", "GET")
    assert gateway.ui_settings == '{"a": 1}'


def test_without_a_ui_no_files_are_served(tmp_path: Path) -> None:
    assert settings.gateway_settings(values("--path", str(tmp_path), "--no-ui")).static_dir == ""
    assert not settings.gateway_settings(values("--no-ui")).has_page


def test_our_page_is_there_where_no_folder_is(tmp_path: Path) -> None:
    assert settings.gateway_settings(values()).has_page
    assert not settings.gateway_settings(values("--path", str(tmp_path))).has_page


def test_the_proxy_is_off_unless_it_is_asked_for() -> None:
    assert not settings.gateway_settings(values()).has_cors_proxy
    assert settings.gateway_settings(values("--ui-mcp-proxy")).has_cors_proxy


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--api-prefix llm", "--api-prefix: 'llm' does not begin with a slash"),
        ("--cors-origins é", "--cors-origins: 'é' cannot stand in a header"),
        ("--path /nowhere", "--path: /nowhere is not a folder"),
        ("--media-path /nowhere", "--media-path: /nowhere is not a folder"),
        ("--ui-config []", "--ui-config: expected a JSON object"),
        ("--ssl-key-file x", "--ssl-cert-file and --ssl-key-file need each other"),
        ("--ssl-key-file x --ssl-cert-file /nowhere", "--ssl-cert-file: cannot read /nowhere"),
    ],
)
def test_bad_http_flags_are_named(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings.check(values(*line.split()))
    assert str(caught.value).startswith(message)


def test_verbosity_reaches_llama_cpp() -> None:
    assert not engine("-lv", "4").is_verbose
    assert engine("-lv", "5").is_verbose
    assert engine("-v").is_verbose


def test_automatic_values() -> None:
    chosen = engine()
    assert (chosen.n_slots, chosen.n_threads, chosen.n_threads_batch) == (4, 0, 0)
    assert chosen.defaults == Params(output=Output(reasoning_format="deepseek"))
    assert chosen.defaults.sampling.seed == RANDOM_SEED


def test_threads() -> None:
    assert engine("-t", "3").n_threads_batch == 3
    assert engine("-t", "3", "-tb", "5").n_threads_batch == 5
    assert engine("-t", "-1").n_threads >= 1


def test_sampling_defaults() -> None:
    line = "--temp -1 --top-k 3 --top-p 0.5 --min-p 0.1 --repeat-penalty 1.5 --repeat-last-n 9 -n 5"
    params = engine(*line.split()).defaults
    sampling = params.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.0, 3, 0.5)
    assert (sampling.min_p, sampling.repeat_penalty, sampling.repeat_last_n) == (0.1, 1.5, 9)
    assert params.limits.n_predict == 5


def test_zero_slots() -> None:
    with pytest.raises(UsageError, match="--parallel"):
        engine("-np", "0")


def test_ports() -> None:
    assert settings.gateway_settings(values()).port == 8080
    assert settings.streams_settings(values()).port == 8081
    assert settings.streams_settings(values("--port", "1")).port == 1
    assert settings.gateway_settings(values("--port", "0")).port == 0


def test_keys_come_from_both_places(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# comment\nthree\n\n four \n")
    found = settings.api_keys(values("--api-key", "one, two", "--api-key-file", str(file)))
    assert found == ("one", "two", "three", "four")


def test_a_template_file_wins(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ 1 }}")
    assert settings.template(values("--chat-template", "chatml")) == "chatml"
    both = values("--chat-template", "chatml", "--chat-template-file", str(file))
    assert settings.template(both) == "{{ 1 }}"


@pytest.mark.parametrize("flag", ["--api-key-file", "--chat-template-file"])
def test_files_that_cannot_be_read(flag: str, tmp_path: Path) -> None:
    binary = tmp_path / "b"
    binary.write_bytes(b"\xff\xfe\xff")
    for path, reason in ((tmp_path / "none", "No such file"), (binary, "not UTF-8")):
        with pytest.raises(UsageError, match=f"{flag}: cannot read .*{reason}"):
            settings.check(values(flag, str(path)))


def test_data_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/xdg")
    assert settings.data_dir(values()) == Path("/xdg/llamatape")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/u")
    assert settings.data_dir(values()) == Path("/home/u/.local/share/llamatape")
    monkeypatch.chdir(tmp_path)
    assert settings.data_dir(values("--data-dir", "d")) == tmp_path / "d"
    assert settings.database_url(values("--data-dir", "/d")) == (
        "sqlite+aiosqlite:////d/llamatape.db"
    )
    assert settings.database_url(values("--database-url", "postgresql://x")) == "postgresql://x"


def test_bus() -> None:
    given = values("--broker-url", "nats://a:1", "--broker-token", "t", "--lease", "2")
    bus = settings.bus_settings(given | {"replicas": 3})
    assert (bus.url, bus.token, bus.lease_s, bus.n_replicas) == ("nats://a:1", "t", 2.0, 3)


def test_queue_and_window_reach_the_gateway() -> None:
    gateway = settings.gateway_settings(values("--max-queue", "7", "--idempotency-window", "60"))
    assert (gateway.max_queue, gateway.idempotency_window_s) == (7, 60)


@pytest.mark.parametrize("window", ["100", "101"])
def test_keys_count_for_less_than_logs_are_on_the_broker(window: str) -> None:
    line = ("--hot-window", "100", "--idempotency-window", window)
    with pytest.raises(UsageError, match=f"--idempotency-window: {window} is not below"):
        settings.check(values(*line))
    settings.check(values("--hot-window", "100", "--idempotency-window", "99"))
