"""GET /metrics as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from schemas.rpc import BusFigures, MetricsDescription
from services.bus.counters import BOUNDS_S, Counters
from services.gateway.metrics_text import ArchiveFigures, Figures, Window, render, windows

COUNTERS = (
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "prompt_seconds_total",
    "tokens_predicted_total",
    "tokens_predicted_seconds_total",
    "n_decode_total",
    "n_tokens_max",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_drafts_total",
)
GAUGES = (
    "prompt_tokens_seconds",
    "predicted_tokens_seconds",
    "requests_processing",
    "requests_deferred",
    "n_busy_slots_per_decode",
)


def bus(*latencies_s: float, n_fenced: int = 0) -> BusFigures:
    counters = Counters()
    for seconds in latencies_s:
        counters.on_append((), seconds)
    counters.n_fenced = n_fenced
    return counters.figures()


def engine(name: str = "e", **fields: int) -> MetricsDescription:
    found = {"started_at_s": 100, **fields}
    return MetricsDescription(engine=name, bus=bus(0.003, n_fenced=1), **found)


def text(*engines: MetricsDescription, **fields: object) -> str:
    known: dict[str, object] = {
        "engines": engines,
        "own": bus(0.003, 0.2),
        "window": Window(),
        "n_queued": 0,
        "n_subscribers": 0,
    }
    return render(Figures(**{**known, **fields})).decode()  # type: ignore[arg-type]


def values(text: str) -> dict[str, float]:
    """Samples without labels, as llama-server's tests read them."""
    lines = (line for line in text.splitlines() if line[:1] != "#" and "{" not in line)
    return {name: float(value) for name, value in (line.split(" ", 1) for line in lines)}


def test_every_name_of_llama_server_with_its_type_and_help() -> None:
    shown = text(engine())
    for names, kind in ((COUNTERS, "counter"), (GAUGES, "gauge")):
        for name in names:
            assert f"# TYPE llamacpp:{name} {kind}\n" in shown
            assert f"# HELP llamacpp:{name} " in shown
            assert f"llamacpp:{name}" in values(shown)


def test_engines_are_added_up() -> None:
    one = engine("a", n_prompt=3, n_predicted=5, predicted_us=2_000_000, n_context_max=9)
    two = engine("b", n_prompt=4, n_predicted=6, n_context_max=7, n_processing=2)
    found = values(text(one, two, n_queued=3, n_subscribers=4))
    assert found["llamacpp:prompt_tokens_total"] == 7
    assert found["llamacpp:tokens_predicted_total"] == 11
    assert found["llamacpp:tokens_predicted_seconds_total"] == 2
    assert found["llamacpp:n_tokens_max"] == 9
    assert found["llamacpp:requests_processing"] == 2
    assert found["llamacpp:requests_deferred"] == found["llamatape_queue_depth"] == 3
    assert found["llamatape_live_subscribers"] == 4
    assert found["llamatape_fenced_appends_total"] == 2


def test_without_engines_all_is_zero() -> None:
    found = values(text())
    assert found["llamacpp:n_busy_slots_per_decode"] == 0
    assert found["llamatape_engines"] == 0


def test_latencies_are_cumulated_per_service() -> None:
    families = {family.name: family for family in text_string_to_metric_families(text(engine()))}
    samples = families["llamatape_append_seconds"].samples
    gateway = [s for s in samples if s.labels.get("service") == "gateway"]
    buckets = {s.labels["le"]: s.value for s in gateway if s.name.endswith("_bucket")}
    assert len(buckets) == len(BOUNDS_S) + 1
    assert (buckets["0.002"], buckets["0.005"], buckets["0.25"], buckets["+Inf"]) == (0, 1, 2, 2)
    assert next(s.value for s in gateway if s.name.endswith("_count")) == 2


def test_rates_are_those_since_the_last_look() -> None:
    before = engine(n_predicted_steps=10, predicted_us=1_000_000, n_prompt=5, prompt_us=100)
    now = engine(n_predicted_steps=30, predicted_us=3_000_000, n_prompt=5, prompt_us=100)
    found = values(text(now, window=windows({"e": before}, [now])))
    assert found["llamacpp:predicted_tokens_seconds"] == 10
    assert found["llamacpp:prompt_tokens_seconds"] == 0


def test_an_engine_that_was_started_anew_counts_from_its_start() -> None:
    before = engine(started_at_s=1, n_predicted_steps=1000, predicted_us=9)
    now = engine(started_at_s=2, n_predicted_steps=5, predicted_us=1_000_000)
    assert windows({"e": before}, [now]) == windows({}, [now])


def test_the_archive_is_shown_where_there_is_one() -> None:
    def shown(archive: ArchiveFigures | None) -> str:
        figures = Figures(
            engines=(), own=bus(), window=Window(), n_queued=0, n_subscribers=0, archive=archive
        )
        return render(figures).decode()

    text = shown(ArchiveFigures(n_archived=7, n_waiting=2, lag_s=1.5))
    assert "llamatape_archived_total 7.0" in text
    assert "llamatape_archive_waiting 2.0" in text
    assert "llamatape_archive_lag_seconds 1.5" in text
    assert "archived_total" not in shown(ArchiveFigures(n_archived=None, n_waiting=2, lag_s=1.5))
    assert "archive" not in shown(None)
