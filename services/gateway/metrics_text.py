"""Metrics as Prometheus reads them: llama-server's names under `llamacpp:`, ours under `llamatape_`. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from schemas.rpc import BusFigures, MetricsDescription

CONTENT_TYPE = "text/plain; version=0.0.4"
ENGINE, GATEWAY = "engine", "gateway"


@dataclass(frozen=True, kw_only=True)
class Window:
    """What happened between two looks: tokens and microseconds of prefill and of generation."""

    n_prompt: int = 0
    prompt_us: int = 0
    n_steps: int = 0
    predicted_us: int = 0


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Everything that is shown. engines: totals of each. own: of this process on the bus.

    window: since the last look. n_queued: tasks that no engine has taken. n_subscribers: readers of
    streams that are not at their end. archive: None where there is none. refused: requests that this
    process did not let in, by error code.
    """

    engines: tuple[MetricsDescription, ...]
    own: BusFigures
    window: Window
    n_queued: int
    n_subscribers: int
    archive: "ArchiveFigures | None" = None
    refused: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True)
class ArchiveFigures:
    """n_archived: generations ever archived, None while the archive does not answer. n_waiting: that
    have ended and are not archived; lag_s: for how long the first one has been so."""

    n_archived: int | None
    n_waiting: int
    lag_s: float


def windows(before: Mapping[str, MetricsDescription], now: Iterable[MetricsDescription]) -> Window:
    """What the engines did since `before` (by engine); one that was started anew did all of it."""
    pairs = [(_same_life(before.get(engine.engine), engine), engine) for engine in now]
    return Window(
        n_prompt=sum(b.n_prompt - (a.n_prompt if a else 0) for a, b in pairs),
        prompt_us=sum(b.prompt_us - (a.prompt_us if a else 0) for a, b in pairs),
        n_steps=sum(b.n_predicted_steps - (a.n_predicted_steps if a else 0) for a, b in pairs),
        predicted_us=sum(b.predicted_us - (a.predicted_us if a else 0) for a, b in pairs),
    )


def _same_life(
    before: MetricsDescription | None, now: MetricsDescription
) -> MetricsDescription | None:
    is_same = before is not None and before.started_at_s == now.started_at_s
    return before if is_same else None


class _Collected:
    """What `generate_latest` wants of a registry."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        yield from _llamacpp_counters(self._figures.engines)
        yield from _llamacpp_gauges(self._figures)
        yield from _own(self._figures)


def render(figures: Figures) -> bytes:
    """The text of GET /metrics."""
    text = generate_latest(_Collected(figures))  # pyright: ignore[reportArgumentType]
    # The library ends every counter's name with _total; llama-server's has none here.
    return text.replace(
        b"# TYPE llamacpp:n_tokens_max gauge", b"# TYPE llamacpp:n_tokens_max counter"
    )


def _llamacpp_counters(engines: tuple[MetricsDescription, ...]) -> Iterator[Metric]:
    def counter(name: str, text: str, value: float) -> Metric:
        return CounterMetricFamily(f"llamacpp:{name}", text, value)

    yield counter(
        "prompt_tokens",
        "Prompt tokens processed, without cached ones",
        sum(e.n_prompt for e in engines),
    )
    yield counter(
        "prompt_tokens_cached",
        "Prompt tokens taken from a cache",
        sum(e.n_prompt_cached for e in engines),
    )
    yield counter(
        "prompt_seconds", "Time spent on prompts", sum(e.prompt_us for e in engines) / 1e6
    )
    yield counter("tokens_predicted", "Tokens generated", sum(e.n_predicted for e in engines))
    yield counter(
        "tokens_predicted_seconds",
        "Time spent on generating",
        sum(e.predicted_us for e in engines) / 1e6,
    )
    yield counter("n_decode", "Decode calls", sum(e.n_decodes for e in engines))
    yield GaugeMetricFamily(
        "llamacpp:n_tokens_max",
        "Most tokens that a sequence has had",
        max((e.n_context_max for e in engines), default=0),
    )
    for name, text in (
        ("spec_decode_num_draft_tokens", "Speculative decoding: tokens drafted"),
        ("spec_decode_num_accepted_tokens", "Speculative decoding: drafted tokens accepted"),
        ("spec_decode_num_drafts", "Speculative decoding: verification steps"),
    ):
        yield counter(name, text, 0)


def _llamacpp_gauges(figures: Figures) -> Iterator[Metric]:
    def gauge(name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(f"llamacpp:{name}", text, value)

    engines, window = figures.engines, figures.window
    yield gauge(
        "prompt_tokens_seconds",
        "Prompt tokens per second since the last look",
        _per_second(window.n_prompt, window.prompt_us),
    )
    yield gauge(
        "predicted_tokens_seconds",
        "Tokens generated per second since the last look",
        _per_second(window.n_steps, window.predicted_us),
    )
    n_processing = sum(e.n_processing for e in engines)
    yield gauge("requests_processing", "Slots at work", n_processing)
    yield gauge("requests_deferred", "Requests that wait for a slot", figures.n_queued)
    yield gauge(
        "n_busy_slots_per_decode",
        "Slots at work per decode call, on average",
        sum(e.n_busy_slots for e in engines) / max(1, sum(e.n_decodes for e in engines)),
    )


def _per_second(n_tokens: int, microseconds: int) -> float:
    return n_tokens / microseconds * 1e6 if microseconds > 0 else 0.0


def _own(figures: Figures) -> Iterator[Metric]:
    processes = [(ENGINE, engine.bus) for engine in figures.engines] + [(GATEWAY, figures.own)]
    yield GaugeMetricFamily("llamatape_engines", "Loaded engines", len(figures.engines))
    yield GaugeMetricFamily(
        "llamatape_queue_depth", "Tasks that no engine has taken", figures.n_queued
    )
    yield GaugeMetricFamily(
        "llamatape_live_subscribers", "Readers of running streams", figures.n_subscribers
    )
    yield GaugeMetricFamily(
        "llamatape_live_logs", "Logs that this gateway follows", figures.own.n_live
    )
    for name, text, attribute in (
        ("fenced_appends", "Appends that another writer was faster than", "n_fenced"),
        ("gaps_filled", "Breaks in live logs that were filled from history", "n_gaps"),
        ("failovers", "Generations continued by another attempt", "n_failovers"),
        ("pings", "Heartbeats written into logs", "n_pings"),
    ):
        total = sum(getattr(found, attribute) for _, found in processes)
        yield CounterMetricFamily(f"llamatape_{name}", text, total)
    yield _refused(figures.refused)
    yield from _archive(figures.archive)
    yield _append_latency(processes)


def _refused(refused: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        "llamatape_refused", "Requests that were not let in here", labels=["error"]
    )
    for code, n in sorted(refused.items()):
        family.add_metric([code], n)
    return family


def _archive(figures: ArchiveFigures | None) -> Iterator[Metric]:
    if figures is None:
        return
    if figures.n_archived is not None:
        yield CounterMetricFamily(
            "llamatape_archived", "Generations that were ever archived", figures.n_archived
        )
    yield GaugeMetricFamily(
        "llamatape_archive_waiting", "Ended generations on their way there", figures.n_waiting
    )
    yield GaugeMetricFamily(
        "llamatape_archive_lag_seconds", "How long the first of them has waited", figures.lag_s
    )


def _append_latency(processes: list[tuple[str, BusFigures]]) -> Metric:
    family = HistogramMetricFamily(
        "llamatape_append_seconds",
        "From handing an entry to the broker to its acknowledgement",
        labels=["service"],
    )
    for service in (ENGINE, GATEWAY):
        found = [figures for name, figures in processes if name == service]
        if found:
            family.add_metric([service], _buckets(found), sum(f.append_s for f in found))
    return family


def _buckets(found: list[BusFigures]) -> list[tuple[str, float]]:
    """Cumulated, as Prometheus wants them; all processes have the same bounds."""
    sums = [sum(column) for column in zip(*(figures.appends for figures in found), strict=True)]
    bounds = [*(str(bound) for bound in found[0].append_bounds_s), "+Inf"]
    return [(bound, sum(sums[: i + 1])) for i, bound in enumerate(bounds)]
