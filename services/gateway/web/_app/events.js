// Server-sent events out of a response's body: `take` gets the data of each, until `[DONE]`.
// reading: how far the stream was read; bytes counts what came, so that a broken stream is read on
// from there; rest holds the bytes of an event that is not complete.

export async function readEvents(body, reading, take) {
  const reader = body.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      reading.bytes += value.length;
      for (const event of whole(reading, value)) {
        const data = dataOf(event);
        if (data === "[DONE]") reading.isDone = true;
        else if (data) take(data);
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

// The events that `bytes` completes; they are cut as bytes, since a character may be cut, too.
function whole(reading, bytes) {
  const all = new Uint8Array(reading.rest.length + bytes.length);
  all.set(reading.rest);
  all.set(bytes, reading.rest.length);
  const events = [];
  let start = 0;
  for (let end = blank(all, start); end >= 0; end = blank(all, start)) {
    events.push(new TextDecoder().decode(all.subarray(start, end)));
    start = end + 2;
  }
  reading.rest = all.slice(start);
  return events;
}

function blank(bytes, from) {
  for (let at = from; at + 1 < bytes.length; at += 1) {
    if (bytes[at] === 10 && bytes[at + 1] === 10) return at;
  }
  return -1;
}

function dataOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data: "));
  return lines.map((line) => line.slice(6)).join("\n");
}
