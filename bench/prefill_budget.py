"""What a neighbour's long prompt does to a running chat, by `--prefill-budget`.

    .venv/bin/python -m bench.prefill_budget --model smollm2.gguf --budgets 0 8 32 512

One decoder per budget: a chat generates alone, then beside a prompt of 4,000 tokens. Told are the times
between the chat's tokens, as the decoder itself measures them, and the prompt's time to first token.
"""

import argparse
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.report import measuring, median, percentile, table
from schemas import codec
from schemas.params import Limits, Params, Sampling
from services.engine.caching import Caching
from services.engine.decoder.pipe import LENGTH
from services.engine.options import ContextOptions
from services.engine.protocol import (
    Admit,
    Cancel,
    ChoiceJob,
    Command,
    DecoderConfig,
    Emitted,
    Output,
    Ready,
    Report,
)

CHAT, NEIGHBOUR, ALONE = "chat", "neighbour", "alone"
N_UNLOADED = 60


class Decoder:
    """A decoder process; blocking."""

    def __init__(self, config: DecoderConfig) -> None:
        self._connection, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "services.cli", "decoder", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self._buffer = bytearray()
        self._send(codec.encode(config))
        self._outputs = self._read()
        self.until(Ready)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def order(self, command: Command) -> None:
        self._send(codec.encode(command))

    def next(self) -> Output:
        return next(self._outputs)

    def until(self, kind: type) -> None:
        while not isinstance(self.next(), kind):
            pass

    def _send(self, frame: bytes) -> None:
        self._connection.sendall(LENGTH.pack(len(frame)) + frame)

    def _read(self) -> Iterator[Output]:
        while data := self._connection.recv(1 << 16):
            self._buffer += data
            while len(self._buffer) >= LENGTH.size:
                end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
                if len(self._buffer) < end:
                    break
                frame = bytes(self._buffer[LENGTH.size : end])
                del self._buffer[:end]
                yield from codec.decode(frame, Report).outputs


@dataclass(frozen=True, kw_only=True)
class Figures:
    """gaps: milliseconds between the chat's tokens. first_ms: the neighbour's, alone_ms: unloaded."""

    unloaded: list[float]
    loaded: list[float]
    first_ms: float
    alone_ms: float


def admit(name: str, prompt: range, n_predict: int) -> Admit:
    params = Params(
        limits=Limits(n_predict=n_predict, cache_prompt=False), sampling=Sampling(ignore_eos=True)
    )
    job = ChoiceJob(choice=0, prompt=tuple(prompt), seed=1)
    return Admit(generation_id=name, choices=(job,), params=params)


def first_token_ms(decoder: Decoder, name: str) -> tuple[float, list[int]]:
    """Until `name` has its first token: its time, and the times of the chat's tokens meanwhile."""
    chat_us: list[int] = []
    while True:
        output = decoder.next()
        if isinstance(output, Emitted) and output.generation_id == name:
            return output.prompt_us / 1000, chat_us
        if isinstance(output, Emitted):
            chat_us.append(output.elapsed_us)


def gaps_ms(times_us: list[int]) -> list[float]:
    return [(b - a) / 1000 for a, b in itertools.pairwise(times_us)]


def measure(config: DecoderConfig, n_prompt: int) -> Figures:
    decoder = Decoder(config)
    long = range(1000, 1000 + n_prompt)
    decoder.order(admit(ALONE, long, 1))
    alone_ms, _ = first_token_ms(decoder, ALONE)
    decoder.order(admit(CHAT, range(500, 530), -1))
    times: list[int] = []
    while len(times) <= N_UNLOADED:
        output = decoder.next()
        if isinstance(output, Emitted):
            times.append(output.elapsed_us)
    decoder.order(admit(NEIGHBOUR, long, 1))
    first_ms, meanwhile = first_token_ms(decoder, NEIGHBOUR)
    decoder.order(Cancel(generation_id=CHAT))
    decoder.close()
    unloaded = gaps_ms(times)[5:]
    return Figures(
        unloaded=unloaded, loaded=gaps_ms(meanwhile), first_ms=first_ms, alone_ms=alone_ms
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--flash-attn", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--budgets", type=int, nargs="+", default=[0, 16, 512])
    options = parser.parse_args()
    rows: list[list[object]] = []
    with measuring("prefill_budget") as figures:
        for budget in options.budgets:
            caching = Caching(is_unified=True, prefill_budget=budget)
            config = DecoderConfig(
                model_path=options.model,
                n_threads=options.threads,
                caching=caching,
                context=ContextOptions(flash_attn=options.flash_attn),
            )
            rows.append(row(budget, measure(config, options.prompt)))
            print(f"budget {budget} done", flush=True)
            figures[str(budget)] = rows[-1][1:]
        head = ("budget", "gap alone ms", "beside p50", "mean", "p90", "p99", "prompt s", "alone s")
        table(head, rows)


def row(budget: int, found: Figures) -> list[object]:
    alone, beside = median(found.unloaded), median(found.loaded)
    seconds = (round(found.first_ms / 1000, 2), round(found.alone_ms / 1000, 2))
    mean = sum(found.loaded) / max(1, len(found.loaded))
    p90, p99 = percentile(found.loaded, 90), percentile(found.loaded, 99)
    return [budget, alone, beside, mean, p90, p99, *seconds]


if __name__ == "__main__":
    main()
