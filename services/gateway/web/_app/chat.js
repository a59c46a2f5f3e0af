// The chat of the page at `/`. An answer belongs to a conversation id, so it is found again after a
// reload and read on after a lost connection: the server keeps every token. No library, no build.
import { readEvents } from "./events.js";

const STORE = "llamatape.chat";
const SETTINGS = ["key", "system", "temperature", "max_tokens"];
const RETRY_MS = [200, 500, 1000, 2000, 5000, 5000];

const $ = (id) => document.getElementById(id);
const state = load();
let answering = null;

function load() {
  const fresh = { conversation: newId(), messages: [], isOpen: false, settings: {} };
  try {
    return { ...fresh, ...JSON.parse(localStorage.getItem(STORE) ?? "{}") };
  } catch {
    return fresh;
  }
}

function save() {
  localStorage.setItem(STORE, JSON.stringify(state));
}

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// ---- requests

function headers(more = {}) {
  const key = state.settings.key;
  return { ...more, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

function streamUrl(from) {
  const query = new URLSearchParams({ conv_id: state.conversation });
  if (from !== undefined) query.set("from", String(from));
  return `v1/stream?${query}`;
}

function ask(signal) {
  const { system, temperature, max_tokens } = state.settings;
  const messages = state.messages.map(({ role, content }) => ({ role, content }));
  const body = { messages, stream: true, model: $("model").value || undefined };
  if (system) messages.unshift({ role: "system", content: system });
  if (temperature) body.temperature = Number(temperature);
  if (max_tokens) body.max_tokens = Number(max_tokens);
  return fetch("v1/chat/completions", {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", "X-Conversation-Id": state.conversation }),
    body: JSON.stringify(body),
    signal,
  });
}

function resume(from, signal) {
  return fetch(streamUrl(from), { headers: headers(), signal });
}

async function problemOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

// ---- one answer

async function answer(request) {
  const turn = (answering = { controller: new AbortController(), isStopped: false });
  const message = { role: "assistant", content: "", thoughts: "", note: "" };
  const shown = show(message);
  setBusy(true);
  try {
    await follow(turn, request, message, shown);
  } catch (error) {
    message.error = error.message;
  }
  if (turn.controller.signal.aborted) return; // another chat has taken the page over
  state.isOpen = false;
  state.messages.push(message);
  save();
  shown.update();
  setBusy(false);
}

// Reads the stream to its end, over as many connections as it takes. request: the first one; null
// where the answer was asked for before the page was loaded.
async function follow(turn, request, message, shown) {
  const reading = { bytes: 0, rest: new Uint8Array(), isDone: false };
  const { signal } = turn.controller;
  let nTries = 0;
  while (!reading.isDone) {
    const before = reading.bytes;
    try {
      const response = await (request ? request(signal) : resume(reading.bytes, signal));
      if (response.ok) request = null;
      if (turn.isStopped && !response.ok) return;
      if (!response.ok && response.status !== 503) throw new Refused(await problemOf(response));
      if (response.ok) await readEvents(response.body, reading, (text) => take(text, message, shown));
    } catch (error) {
      if (error instanceof Refused || signal.aborted || request) throw error;
    }
    if (reading.isDone || turn.isStopped) return;
    nTries = reading.bytes > before ? 0 : nTries + 1;
    if (nTries >= RETRY_MS.length) throw new Error("The server does not answer.");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[nTries]));
  }
}

class Refused extends Error {}

function take(text, message, shown) {
  const chunk = JSON.parse(text);
  if (chunk.error) throw new Refused(chunk.error.message);
  const choice = chunk.choices?.[0];
  message.content += choice?.delta?.content ?? "";
  message.thoughts += choice?.delta?.reasoning_content ?? "";
  for (const call of choice?.delta?.tool_calls ?? []) {
    const name = call.function?.name;
    message.content += (name ? `\n${name} ` : "") + (call.function?.arguments ?? "");
  }
  if (chunk.timings) message.note = noteOf(chunk.timings, choice?.finish_reason);
  shown.update();
}

function noteOf(timings, reason) {
  const pace = timings.predicted_per_second.toFixed(1);
  const end = reason === "length" ? ", cut off at the limit" : "";
  return `${timings.predicted_n} tokens, ${pace} per second${end}`;
}

// ---- the page

function show(message) {
  const article = element("article", message.role, $("messages"));
  const thoughts = element("details", "", article);
  element("summary", "", thoughts).textContent = "Thoughts";
  const thought = element("div", "", thoughts);
  const text = element("div", "text", article);
  const note = element("div", "note", article);
  const update = () => {
    thoughts.hidden = !message.thoughts;
    thought.textContent = message.thoughts ?? "";
    text.textContent = message.content;
    note.textContent = message.error ?? message.note ?? "";
    note.classList.toggle("error", Boolean(message.error));
  };
  update();
  article.scrollIntoView({ block: "end" });
  return { update };
}

function element(tag, kind, parent) {
  const made = document.createElement(tag);
  made.className = kind;
  parent.append(made);
  return made;
}

function setBusy(isBusy) {
  $("send").hidden = isBusy;
  $("stop").hidden = !isBusy;
  document.body.dataset.busy = String(isBusy);
  if (!isBusy) $("input").focus();
}

function send() {
  const content = $("input").value.trim();
  if (!content || state.isOpen) return;
  $("input").value = "";
  const message = { role: "user", content };
  state.messages.push(message);
  state.isOpen = true;
  save();
  show(message);
  answer(ask);
}

function startOver() {
  answering?.controller.abort();
  if (state.isOpen) fetch(streamUrl(), { method: "DELETE", headers: headers() });
  Object.assign(state, { conversation: newId(), messages: [], isOpen: false });
  save();
  $("messages").replaceChildren();
  setBusy(false);
}

async function tell() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (!response.ok) throw new Error(await problemOf(response));
    const names = (await response.json()).data.map((model) => model.id);
    $("model").replaceChildren(...names.map((name) => new Option(name, name)));
    $("model").hidden = names.length === 0;
    $("state").textContent = names.length ? "" : "No models are known.";
  } catch (error) {
    $("state").textContent = error.message;
    setTimeout(tell, 2000);
  }
}

async function tellVersion() {
  const response = await fetch("_app/version.json");
  if (response.ok) $("version").textContent = `· version ${(await response.json()).version}`;
}

function wire() {
  $("form").addEventListener("submit", (event) => (event.preventDefault(), send()));
  $("input").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  $("stop").addEventListener("click", () => {
    if (answering) answering.isStopped = true;
    fetch(streamUrl(), { method: "DELETE", headers: headers() });
  });
  $("new").addEventListener("click", startOver);
  for (const name of SETTINGS) {
    $(name).value = state.settings[name] ?? "";
    $(name).addEventListener("change", () => {
      state.settings[name] = $(name).value;
      save();
      if (name === "key") tell();
    });
  }
}

wire();
setBusy(false);
state.messages.forEach(show);
if (state.isOpen) answer(null);
tell();
tellVersion();
