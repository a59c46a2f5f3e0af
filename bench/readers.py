"""1,000 readers on one live stream: all must complete, with equal bytes."""

import argparse
import json
import time
import urllib.request

from bench import generator, report
from bench.load import Job
from bench.processes import platform

N_READERS, N_TOKENS, RATE = 1000, 600, 50
CONVERSATION = "bench-readers"


def run(options: argparse.Namespace) -> None:
    n_readers, n_tokens = options.streams or N_READERS, options.tokens or N_TOKENS
    with (
        report.measuring("readers") as figures,
        platform("--simulate", f"tokens_per_s={RATE}") as s,
    ):
        job = generator.completions(s.url, 1, n_tokens, conversation=CONVERSATION)
        writer = generator.Load(job)
        _wait_begun(s.url)
        before = s.cpu_s()
        path = f"/v1/stream?conv_id={CONVERSATION}"
        readers = Job(
            url=s.url, path=path, method="GET", bodies=[None] * n_readers, is_digested=True
        )
        outcome = generator.run(readers)
        writer.outcome()
        after = s.cpu_s()
        cpu_s = {name: after[name] - before.get(name, 0.0) for name in after}
        rows: list[list[object]] = [
            ["readers", n_readers],
            ["complete", outcome.n_complete],
            ["different answers", len(outcome.digests)],
            ["seconds", outcome.elapsed_s],
            ["chunks delivered/s", (len(outcome.gaps) + n_readers) / outcome.elapsed_s],
            ["CPU of the API process, s", cpu_s.get("api", 0.0)],
        ]
        report.table(["1,000 readers", "seen"], rows)
        figures |= {str(name): value for name, value in rows}


def _wait_begun(url: str) -> None:
    """Until the stream can be looked up."""
    body = json.dumps({"conversation_ids": [CONVERSATION]}).encode()
    while True:
        request = urllib.request.Request(f"{url}/v1/streams/lookup", body)
        with urllib.request.urlopen(request) as answer:
            if any(entry["total_bytes"] for entry in json.load(answer)):
                return
        time.sleep(0.02)
