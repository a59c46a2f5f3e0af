"""What a neighbour's long prompt does to a running chat, by `--prefill-threads` and `--prefill-budget`.

    .venv/bin/python -m bench.prefill_budget --model smollm2.gguf --ways default threads=0 budget=512

One decoder for each way: a chat generates beside a prompt of 4,000 tokens, then the same chat alone. Told
are the times between the chat's tokens, as the decoder itself measures them, each also as a multiple of
the time at the same place of the chat that is alone (a chat gets slower as it gets longer: its own cells
are attended to as well), and the prompt's time to first token.
"""

import argparse
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

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

CHAT, NEIGHBOUR, ALONE, WARM_UP = "chat", "neighbour", "alone", "warm-up"
N_FIRST = 60
"""Tokens of the chat before the neighbour comes."""
N_WARM_UP = 30


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
    """alone, beside: milliseconds between the chat's tokens, at the same places. first_ms: the
    neighbour's first token, alone_ms: where nobody generates."""

    alone: list[float]
    beside: list[float]
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


def chat_times_us(decoder: Decoder, name: str, n: int) -> list[int]:
    """When the next `n` tokens of a chat came."""
    times: list[int] = []
    while len(times) < n:
        output = decoder.next()
        if isinstance(output, Emitted) and output.generation_id == name:
            times.append(output.elapsed_us)
    return times


def measure(config: DecoderConfig, n_prompt: int) -> Figures:
    decoder = Decoder(config)
    long, chat = range(1000, 1000 + n_prompt), range(500, 530)
    decoder.order(admit(WARM_UP, chat, N_WARM_UP))
    chat_times_us(decoder, WARM_UP, N_WARM_UP)
    decoder.order(admit(CHAT, chat, -1))
    first = chat_times_us(decoder, CHAT, N_FIRST)
    decoder.order(admit(NEIGHBOUR, long, 1))
    first_ms, meanwhile = first_token_ms(decoder, NEIGHBOUR)
    decoder.order(Cancel(generation_id=CHAT))
    beside = gaps_ms(first[-1:] + meanwhile)
    n = N_FIRST + len(beside)
    decoder.order(admit(ALONE, chat, n))
    alone = gaps_ms(chat_times_us(decoder, ALONE, n))[N_FIRST - 1 :]
    decoder.order(admit(ALONE + " prompt", long, 1))
    alone_ms, _ = first_token_ms(decoder, ALONE + " prompt")
    decoder.close()
    return Figures(alone=alone, beside=beside, first_ms=first_ms, alone_ms=alone_ms)


def caching(way: str) -> Caching:
    """`default`, `threads=N`, `budget=N`, `split` (a cache for each slot), or some of them with commas."""
    caching = Caching(is_unified=True)
    for word in way.split(","):
        name, _, value = word.partition("=")
        match name:
            case "default":
                pass
            case "threads":
                caching = msgspec.structs.replace(caching, prefill_threads=int(value))
            case "budget":
                caching = msgspec.structs.replace(caching, prefill_budget=int(value))
            case "split":
                caching = msgspec.structs.replace(caching, is_unified=False)
            case _:
                raise SystemExit(f"no way {word}")
    return caching


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--flash-attn", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--ways", nargs="+", default=["default", "threads=0", "budget=512"])
    options = parser.parse_args()
    rows: list[list[object]] = []
    with measuring("prefill_budget") as figures:
        for way in options.ways:
            config = DecoderConfig(
                model_path=options.model,
                n_ctx=4 * 8192,
                n_threads=options.threads,
                caching=caching(way),
                context=ContextOptions(flash_attn=options.flash_attn),
            )
            rows.append(row(way, measure(config, options.prompt)))
            print(f"{way} done", flush=True)
            figures[way] = rows[-1][1:]
        head = (
            "way",
            "alone p50 ms",
            "p99",
            "beside p50",
            "p99",
            "most",
            "x p50",
            "x mean",
            "x p90",
            "x p99",
            "x most",
            "prompt s",
            "alone s",
        )
        table(head, rows)


def row(way: str, found: Figures) -> list[object]:
    alone, beside = found.alone, found.beside
    times = [b / a for a, b in zip(alone, beside, strict=True)]
    mean = sum(beside) / sum(alone)
    seconds = (round(found.first_ms / 1000, 1), round(found.alone_ms / 1000, 1))
    return [
        way,
        median(alone),
        percentile(alone, 99),
        median(beside),
        percentile(beside, 99),
        max(beside),
        *(round(n, 2) for n in (median(times), mean)),
        *(round(percentile(times, q), 2) for q in (90, 99)),
        round(max(times), 2),
        *seconds,
    ]


if __name__ == "__main__":
    main()
