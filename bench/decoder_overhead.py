"""What our Python costs inside the decoder: CPU per token outside `llama_decode`, by part.

    .venv/bin/python -m bench.decoder_overhead --model tests/models/stories-tiny.gguf --slots 8

Runs the real loop in this process, its front being a thread that only reads. Sampling is llama.cpp's
work for the most part; the rest (plan, batch, text, report) is ours.
"""

import argparse
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from schemas import codec
from schemas.params import Limits, Params
from services.engine.decoder.loop import Loop
from services.engine.decoder.pipe import LENGTH, Pipe
from services.engine.decoder.running import Running, opener
from services.engine.llama.context import Context
from services.engine.llama.sampler import Sampler
from services.engine.protocol import Admit, ChoiceJob, DecoderConfig, Stop
from services.engine.scheduler import Scheduler, Sizes

SPENT: dict[str, float] = defaultdict(float)


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Any:
        start = time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            SPENT[name] += time.thread_time() - start

    return call


def watch() -> None:
    """Measure the parts of a step; what `llama_decode` does in other threads does not count."""
    watched = ((Context, "decode"), (Sampler, "sample"), (Running, "sample"), (Pipe, "write"))
    watched += ((Scheduler, "plan"), (Scheduler, "commit"), (Pipe, "read_commands"))
    for kind, name in watched:
        setattr(kind, name, timed(f"{kind.__name__}.{name}", getattr(kind, name)))


def drain(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def frame(message: Any) -> bytes:
    data = codec.encode(message)
    return LENGTH.pack(len(data)) + data


def run(model: str, n_slots: int, n_tokens: int) -> float:
    """Thread CPU seconds of the loop for n_slots × n_tokens tokens."""
    config = DecoderConfig(model_path=model, n_ctx=1024 * n_slots, n_slots=n_slots, n_threads=1)
    context = Context(config, lambda _: True)
    ours, theirs = socket.socketpair()
    for number in range(n_slots):
        job = ChoiceJob(choice=0, prompt=(1, 300 + number, 310), seed=number)
        params = Params(limits=Limits(n_predict=n_tokens))
        theirs.sendall(frame(Admit(generation_id=f"{number:036}", choices=(job,), params=params)))
    reader = threading.Thread(target=drain, args=(theirs,))
    reader.start()
    scheduler = Scheduler(Sizes(n_slots=n_slots), context.memory)
    loop = Loop(context, opener(context), scheduler, Pipe(ours), context.memory)
    start = time.thread_time()
    stop_when_idle(scheduler, theirs)
    loop.run()
    spent = time.thread_time() - start
    ours.close()
    reader.join()
    context.close()
    return spent


def stop_when_idle(scheduler: Scheduler, theirs: socket.socket) -> None:
    """Say Stop once the last slot is free."""
    release = scheduler.release

    def released(slot: int, **kwargs: bool) -> None:
        release(slot, **kwargs)
        if scheduler.is_idle:
            theirs.sendall(frame(Stop()))

    scheduler.release = released  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tests/models/stories-tiny.gguf")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400)
    args = parser.parse_args()
    watch()
    spent = run(args.model, args.slots, args.tokens)
    n_tokens = args.slots * args.tokens
    ours = spent - SPENT["Context.decode"] - SPENT["Sampler.sample"]
    for name, seconds in sorted(SPENT.items()):
        print(f"{name:22} {seconds / n_tokens * 1e6:8.1f} µs per token")
    print(f"{'ours':22} {ours / n_tokens * 1e6:8.1f} µs per token (without decode and sampling)")


if __name__ == "__main__":
    main()
