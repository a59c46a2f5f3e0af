"""Runs the load generator in a process of its own, so that its work is nobody else's."""

import json
import subprocess
import sys
from dataclasses import asdict

from bench.load import Job, Outcome


class Load:
    """One run of the generator, started at once."""

    def __init__(self, job: Job) -> None:
        command = [sys.executable, "-m", "bench.load"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdin
        self.process.stdin.write(json.dumps(asdict(job)))
        self.process.stdin.close()

    def outcome(self) -> Outcome:
        """Blocks until it is over. Ends the program if the generator failed."""
        assert self.process.stdout
        text = self.process.stdout.read()
        if self.process.wait() != 0:
            sys.exit("the load generator failed")
        return Outcome(**json.loads(text))


def run(job: Job) -> Outcome:
    return Load(job).outcome()


def completions(
    url: str, n_streams: int, n_tokens: int, *, conversation: str = "", **fields: object
) -> Job:
    """`n_streams` streamed completions of `n_tokens` tokens each, with prompts of their own."""
    bodies: list[object] = [
        {
            "prompt": f"Story number {n}: once upon a time there was",
            "n_predict": n_tokens,
            "stream": True,
            "ignore_eos": True,
            **fields,
        }
        for n in range(n_streams)
    ]
    headers = {"X-Conversation-Id": conversation} if conversation else {}
    return Job(url=url, bodies=bodies, headers=headers)
