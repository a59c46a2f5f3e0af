"""`python -m bench [name …] [--option …]`: run benches by name; all that need no llama-server by default."""

import argparse

from bench import (
    archive,
    cpu,
    durable,
    engines,
    fairness,
    first_token,
    gateway,
    keys,
    peer,
    readers,
    resume,
    start,
)

BENCHES = {
    "start": start.run,
    "cpu": cpu.run,
    "gateway": gateway.run,
    "engines": engines.run,
    "readers": readers.run,
    "resume": resume.run,
    "archive": archive.run,
    "durable": durable.run,
    "fairness": fairness.run,
    "keys": keys.run,
    "peer": peer.run,
    "first_token": first_token.run,
}
BESIDE = ("peer", "first_token")
ALONE = [name for name in BENCHES if name not in BESIDE]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHES)}")
    parser.add_argument("--model", default="", help="GGUF file (peer, first_token, start)")
    parser.add_argument(
        "--threads", type=int, default=1, help="of both servers (peer, first_token)"
    )
    parser.add_argument("--rounds", type=int, default=0, help="repetitions (default: the bench's)")
    parser.add_argument("--rate", type=float, default=100, help="tokens/s per stream (cpu)")
    parser.add_argument("--streams", type=int, default=0, help="at once (default: the bench's)")
    parser.add_argument("--tokens", type=int, default=0, help="per stream (default: the bench's)")
    parser.add_argument(
        "--logs", type=int, default=10_000, help="stored beside (resume), archived (archive)"
    )
    parser.add_argument("--llama-server", default="", help="binary; else it is built once")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"no such bench: {', '.join(unknown)} (there are {', '.join(BENCHES)})")
    for name in options.names or ALONE:
        BENCHES[name](options)


if __name__ == "__main__":
    main()
