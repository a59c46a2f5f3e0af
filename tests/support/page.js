// The chat page without a browser: as much of a document as it needs, then the page's own script.
// Arguments: file of the script, address of the server, what the page has stored, what to do.
// Prints {text, note, stored, n} once the last answer's text fulfils what was asked for.
import { pathToFileURL } from "node:url";

const [file, base, stored, task] = process.argv.slice(1);
const { send, click, until } = JSON.parse(task);

class Element {
  children = [];
  listeners = {};
  dataset = {};
  value = "";
  textContent = "";
  classList = { toggle() {} };
  append(...more) {
    this.children.push(...more);
  }
  replaceChildren(...all) {
    this.children = all;
    this.value = all[0]?.value ?? this.value;
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
  emit(name, more = {}) {
    this.listeners[name]({ preventDefault() {}, ...more });
  }
  scrollIntoView() {}
  focus() {}
}

const known = new Map();
const store = new Map(stored ? [["llamatape.chat", stored]] : []);
const real = globalThis.fetch;
const asked = [];
Object.assign(globalThis, {
  document: {
    body: new Element(),
    createElement: () => new Element(),
    getElementById(id) {
      if (!known.has(id)) known.set(id, new Element());
      return known.get(id);
    },
  },
  localStorage: {
    getItem: (key) => store.get(key) ?? null,
    setItem: (key, value) => store.set(key, value),
  },
  Option: class extends Element {
    constructor(text, value) {
      super();
      this.value = value;
    }
  },
  fetch(path, options) {
    asked.push(real(`${base}/${path}`, options));
    return asked.at(-1);
  },
});

await import(pathToFileURL(file));
const $ = document.getElementById;
if (send) {
  $("input").value = send;
  $("input").emit("keydown", { key: "Enter" });
}

function shown() {
  const [, text, note] = $("messages").children.at(-1)?.children ?? [];
  return { text: text?.textContent ?? "", note: note?.textContent ?? "" };
}

function isReached() {
  const { text, note } = shown();
  const isBusy = document.body.dataset.busy === "true";
  return until === "done" ? !isBusy && Boolean(text || note) : text.includes(until);
}

async function reached() {
  while (!isReached()) await new Promise((resolve) => setTimeout(resolve, 5));
}

await reached();
if (click) {
  $(click).emit("click");
  await Promise.allSettled(asked);
  while (document.body.dataset.busy === "true") await new Promise((resolve) => setTimeout(resolve, 5));
}
const found = { ...shown(), stored: store.get("llamatape.chat"), n: $("messages").children.length };
process.stdout.write(JSON.stringify(found), () => process.exit(0));
