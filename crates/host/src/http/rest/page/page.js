// The operator's page. Every text of a server is inserted as text; nothing here makes markup of data.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const EVERY_MS = 1000;
const WINDOW_MS = 5 * 60 * 1000;
const byId = (id) => document.getElementById(id);

let session = null;
let latest = null;
let tools = [];
let catalogKey = "";
let chosen = null;
/** Segments of each server: name -> [{generation, state, from, to}]. */
const history = new Map();
/** Calls whose cancel was asked for. */
const cancelled = new Set();

/** An element with attributes and children; a string child is text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "click") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function drawn(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Replaces the content of a place, and keeps the focus on the element with the same key. */
function show(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children);
  if (focused !== undefined) {
    const again = [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focused);
    if (again) again.focus();
  }
}

function table(headers, rows) {
  const head = headers.map(([text, kind]) => element("th", { scope: "col", class: kind || null }, text));
  return element("div", { class: "wide" }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
}

function cell(content, kind) {
  return element("td", { class: kind || null }, content);
}

function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${ms.toFixed(0)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A count with its noun. */
function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

class Refused extends Error {
  constructor(status, payload) {
    const hint = payload && payload.hint ? ` (${payload.hint})` : "";
    super(payload && payload.message ? payload.message + hint : `the host answered ${status}`);
    this.status = status;
  }
}

async function ask(method, path, body) {
  const headers = { Accept: "application/json" };
  if (session) headers["X-Mainstay-Page"] = session.secret;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "same-origin", redirect: "error" });
  const text = await answer.text();
  let value = null;
  try { value = JSON.parse(text); } catch { /* Not JSON: the status says enough. */ }
  return { status: answer.status, value };
}

async function demand(method, path, body) {
  const { status, value } = await ask(method, path, body);
  if (status !== 200) throw new Refused(status, value);
  return value;
}

function trouble(text) {
  byId("trouble").hidden = !text;
  byId("trouble").textContent = text || "";
}

function ask_for_token(error, mayReturn) {
  byId("sign-in").hidden = false;
  byId("dashboard").hidden = true;
  byId("sign-in-cancel").hidden = !mayReturn;
  byId("sign-in-error").textContent = error || "";
  byId("leave").hidden = true;
  byId("enter").hidden = true;
  if (!mayReturn) {
    byId("host-state").textContent = "signed out";
    byId("host-state").className = "pill";
  }
  byId("token").focus();
}

async function signed_in(found) {
  session = found;
  byId("token").value = "";
  byId("sign-in").hidden = true;
  byId("dashboard").hidden = false;
  byId("leave").hidden = !session.asked;
  byId("enter").hidden = session.asked;
  await look();
}

async function begin() {
  const { status, value } = await ask("GET", "/page/session");
  if (status === 200) return signed_in(value);
  // A host that asks for no token gives a session to every browser that reaches it.
  const free = await ask("POST", "/page/session", {});
  if (free.status === 200) return signed_in(free.value);
  ask_for_token("");
}

byId("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const { status, value } = await ask("POST", "/page/session", { token: byId("token").value });
    if (status !== 200) throw new Refused(status, value);
    tools = [];
    catalogKey = "";
    await signed_in(value);
  } catch (error) {
    byId("sign-in-error").textContent = error.message;
    byId("token").select();
  }
});

byId("leave").addEventListener("click", async () => {
  await ask("DELETE", "/page/session");
  session = null;
  location.reload();
});
byId("enter").addEventListener("click", () => ask_for_token("", true));
byId("sign-in-cancel").addEventListener("click", () => signed_in(session));

function facts(fault) {
  if (!fault) return "";
  const parts = [fault.detail, fault.said, fault.stderr].filter((part) => typeof part === "string" && part);
  return parts.join("\n") || JSON.stringify(fault);
}

function show_numbers({ health, totals }) {
  const tile = (number, label) => element("div", { class: "tile" }, element("b", {}, String(number)), element("span", {}, label));
  show(byId("tiles"),
    tile(health.sessions, "sessions"), tile(health.in_flight, "in flight"), tile(health.queue_depth, "queued"),
    tile(totals.request_count, "requests"), tile(totals.response_error_count, "errors"), tile(health.restart_count, "restarts"));
}

/** Adds what is known now to the segments of a server. */
function remember(worker, now) {
  const segments = history.get(worker.name) || [];
  history.set(worker.name, segments);
  const last = segments.at(-1);
  if (last && last.generation === worker.generation && last.state === worker.state) {
    last.to = now;
  } else {
    const since = worker.uptime_ms === null ? now : now - worker.uptime_ms;
    const from = Math.max(since, last ? last.to : now - WINDOW_MS);
    if (last) last.to = Math.max(last.to, Math.min(from, now));
    segments.push({ generation: worker.generation, state: worker.state, from: last ? last.to : from, to: now });
  }
  while (segments.length > 1 && segments[0].to < now - WINDOW_MS) segments.shift();
}

/** Where a time lies in the window, in percent. */
function share(time, now) {
  return Math.max(0, Math.min(100, (1 - (now - time) / WINDOW_MS) * 100));
}

function lane(worker, now) {
  const said = `${worker.name}: ${worker.state}, generation ${worker.generation}, ${counted(worker.restart_count, "restart")}`;
  const picture = drawn("svg", { height: 26, width: "100%", role: "img", "aria-label": said });
  picture.append(drawn("title", {}, said), drawn("rect", { class: "track", width: "100%", height: 26, rx: 5 }));
  for (const segment of history.get(worker.name) || []) {
    const left = share(segment.from, now);
    const wide = Math.max(0.3, share(segment.to, now) - left);
    picture.append(drawn("rect", { class: `s-${segment.state} edge`, x: `${left}%`, y: 3, width: `${wide}%`, height: 20, rx: 4 }));
    if (wide > 6) picture.append(drawn("text", { x: `${left}%`, dx: 8, y: 17 }, `#${segment.generation}`));
  }
  const name = element("div", { class: "who" }, element("span", { class: "name" }, worker.name), " ", element("span", { class: `pill ${worker.state}` }, worker.state));
  const facts = [`generation ${worker.generation}`, counted(worker.restart_count, "restart"), worker.pid ? `pid ${worker.pid}` : null, worker.tree_kill, worker.standby ? `standby ${worker.standby.state}` : null];
  const about = element("div", { class: "quiet" }, facts.filter(Boolean).join(" · "));
  return element("div", { class: "lane" }, name, element("div", {}, picture, about));
}

/** The times below the lanes. */
function axis() {
  const picture = drawn("svg", { height: 16, width: "100%", "aria-hidden": "true" });
  for (let minute = 5; minute >= 0; minute -= 1) {
    const anchor = minute === 5 ? "start" : minute === 0 ? "end" : "middle";
    picture.append(drawn("text", { class: minute === 4 || minute === 2 ? "axis odd" : "axis", x: `${(5 - minute) * 20}%`, y: 12, "text-anchor": anchor }, minute === 0 ? "now" : `−${minute} min`));
  }
  return element("div", { class: "lane" }, element("div", {}), picture);
}

function show_servers(health, now) {
  const workers = health.workers;
  workers.forEach((worker) => remember(worker, now));
  const lanes = workers.map((worker) => lane(worker, now));
  show(byId("timeline"), ...(lanes.length ? [...lanes, axis()] : [element("p", { class: "empty" }, "No server runs. The first call starts one.")]));
  if (!byId("legend").childElementCount) {
    const key = (state, text) => element("span", {}, element("i", { class: `k-${state}` }), text);
    byId("legend").append(key("ready", "ready"), key("starting", "starting or recovering"), key("failed", "failed"), key("cold", "cold"));
  }
}

function show_faults(health) {
  const rows = health.workers.filter((worker) => worker.last_fault).map((worker) => element("tr", {},
    cell(element("span", { class: "name" }, worker.name)),
    cell(worker.last_fault.generation ?? "–"),
    cell(element("span", { class: "mono" }, facts(worker.last_fault)))));
  if (!rows.length && health.last_fault) {
    rows.push(element("tr", {}, cell("host"), cell(health.last_fault.generation ?? "–"), cell(element("span", { class: "mono" }, facts(health.last_fault)))));
  }
  show(byId("faults"), rows.length ? table([["server"], ["generation"], ["what happened"]], rows) : element("p", { class: "empty" }, "None since the start."));
}

function show_calls(calls) {
  const rows = calls.map((call) => {
    const asked = cancelled.has(call.call);
    const button = element("button", { type: "button", class: "danger", "data-key": `cancel-${call.call}`, disabled: asked || !session.may_cancel,
      "aria-label": `Cancel call ${call.call} of ${call.tool || "a tool"}`, click: () => cancel(call.call) }, asked ? "Cancelling" : "Cancel");
    return element("tr", {}, cell(element("span", { class: "name" }, call.tool || "…")), cell(call.server || "–", "optional"), cell(call.stage), cell(duration(call.age_ms), "number"),
      cell(call.attempt || "–", "number optional"), cell(button, "button"));
  });
  const headers = [["tool"], ["server", "optional"], ["stage"], ["age", "number"], ["attempt", "number optional"], [""]];
  show(byId("calls"), rows.length ? table(headers, rows) : element("p", { class: "empty" }, "None."));
  const open = new Set(calls.map((call) => call.call));
  for (const call of cancelled) if (!open.has(call)) cancelled.delete(call);
}

async function cancel(call) {
  cancelled.add(call);
  try { await demand("POST", `/page/cancel/${call}`); trouble(""); } catch (error) { cancelled.delete(call); trouble(`The call was not cancelled: ${error.message}`); }
  await look();
}

function show_approvals(approvals) {
  byId("approvals-card").hidden = approvals === null;
  if (approvals === null) return;
  const rows = approvals.map((one) => {
    const answer = (verb, kind) => element("button", { type: "button", class: kind, "data-key": `${verb}-${one.id}`, click: () => approve(verb, one.id) }, verb === "grant" ? "Grant" : "Deny");
    return element("tr", {}, cell(element("span", { class: "name" }, one.tool)), cell(element("span", { class: "mono" }, one.arguments)), cell(one.who, "optional"), cell(one.rule, "optional"),
      cell(one.granted ? "granted" : element("span", {}, answer("grant", ""), " ", answer("deny", "danger")), "button"));
  });
  show(byId("approvals"), rows.length ? table([["tool"], ["arguments"], ["caller", "optional"], ["rule", "optional"], [""]], rows) : element("p", { class: "empty" }, "No call waits."));
}

async function approve(verb, id) {
  try { await demand("POST", `/page/${verb}/${encodeURIComponent(id)}`); trouble(""); } catch (error) { trouble(`Not answered: ${error.message}`); }
  await look();
}

/** The time, in ms, within which a share of the requests ended: interpolated within its bucket. */
function percentile(latencies, bounds, share) {
  const all = latencies.reduce((sum, count) => sum + count, 0);
  let left = all * share;
  for (let at = 0; at < latencies.length; at += 1) {
    const count = latencies[at];
    if (count > 0 && left <= count) {
      const low = at === 0 ? 0 : bounds[at - 1];
      const high = at < bounds.length ? bounds[at] : low;
      return (low + ((high - low) * left) / count) / 1000;
    }
    left -= count;
  }
  return null;
}

function bars(latencies, bounds, said) {
  const most = Math.max(1, ...latencies);
  const wide = 144 / latencies.length;
  const picture = drawn("svg", { viewBox: "0 0 144 26", preserveAspectRatio: "none", class: "bars", role: "img", "aria-label": said });
  picture.append(drawn("title", {}, `${said}; each bar is a range from ${duration(0)} to above ${duration(bounds.at(-1) / 1000)}`));
  latencies.forEach((count, at) => {
    const height = count === 0 ? 1 : Math.max(2, (25 * count) / most);
    picture.append(drawn("rect", { x: at * wide, y: 26 - height, width: wide - 1, height }));
  });
  return picture;
}

function show_latency(methods, bounds) {
  const measured = methods.filter((one) => one.latencies.some((count) => count > 0));
  measured.sort((a, b) => Number(Boolean(b.tool)) - Number(Boolean(a.tool)) || b.counts.request_count - a.counts.request_count);
  const rows = measured.slice(0, 50).map((one) => {
    const name = one.tool || one.method;
    const of = (share) => duration(percentile(one.latencies, bounds, share));
    return element("tr", {}, cell(element("span", { class: one.tool ? "name" : "quiet" }, name)), cell(one.counts.request_count, "number"), cell(one.counts.response_error_count, "number optional"),
      cell(of(0.5), "number"), cell(of(0.9), "number optional"), cell(of(0.99), "number"),
      cell(bars(one.latencies, bounds, `latencies of ${name}: half within ${of(0.5)}, 99 % within ${of(0.99)}`), "optional"));
  });
  const headers = [["tool or method"], ["requests", "number"], ["errors", "number optional"], ["p50", "number"], ["p90", "number optional"], ["p99", "number"], ["distribution", "optional"]];
  show(byId("latency"), rows.length ? table(headers, rows) : element("p", { class: "empty" }, "No request has ended yet."));
}

function show_catalog() {
  const wanted = byId("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (tool) => wanted.every((word) => `${tool.name} ${tool.description || ""}`.toLowerCase().includes(word));
  const found = tools.filter(fits);
  byId("catalog-count").textContent = wanted.length ? `${found.length} of ${tools.length}` : String(tools.length);
  const rows = found.slice(0, 300).map((tool) => element("tr", {},
    cell(element("span", { class: "name" }, tool.name)),
    cell(String(tool.description || "").split("\n")[0].slice(0, 200), "optional"),
    cell(tool.replay || "–", "optional"), cell(tool.schemaVersion ?? "–", "number optional"),
    cell(element("button", { type: "button", class: "plain", "data-key": `try-${tool.name}`, "aria-label": `Try ${tool.name}`, click: () => open_tool(tool) }, "Try"), "button")));
  const headers = [["tool"], ["description", "optional"], ["replay", "optional"], ["version", "number optional"], [""]];
  show(byId("catalog"), rows.length ? table(headers, rows) : element("p", { class: "empty" }, tools.length ? "No tool has these words." : "No tool is offered."));
}

async function read_catalog(health) {
  const key = health.workers.map((worker) => `${worker.name} ${worker.generation}`).join("\n") + `\n${tools.length}`;
  if (key === catalogKey) return;
  const catalog = await demand("GET", "/page/tools");
  tools = Array.isArray(catalog.tools) ? catalog.tools : [];
  catalogKey = health.workers.map((worker) => `${worker.name} ${worker.generation}`).join("\n") + `\n${tools.length}`;
  show_catalog();
}

/** A field of the form for one argument, and how its value is read. */
function field(name, schema, required) {
  const id = `argument-${name}`;
  const kinds = [].concat(schema.type || []).filter((kind) => kind !== "null");
  const kind = kinds.length === 1 ? kinds[0] : "json";
  const label = element("label", { for: id }, name, " ", element("small", {}, [kind === "json" ? "JSON" : kind, required ? "required" : "optional"].join(", ")));
  const about = schema.description ? element("div", { class: "quiet" }, String(schema.description).slice(0, 300)) : null;
  let input;
  if (Array.isArray(schema.enum)) {
    const values = schema.enum.map((value) => element("option", { value: JSON.stringify(value) }, typeof value === "string" ? value : JSON.stringify(value)));
    input = element("select", { id }, required ? null : element("option", { value: "" }, ""), ...values);
  } else if (kind === "boolean") {
    input = element("select", { id }, required ? null : element("option", { value: "" }, ""), element("option", { value: "true" }, "true"), element("option", { value: "false" }, "false"));
  } else if (kind === "string" && !(schema.maxLength > 200)) {
    input = element("input", { id, type: "text", spellcheck: "false", autocomplete: "off" });
  } else if (kind === "number" || kind === "integer") {
    input = element("input", { id, type: "text", inputmode: "decimal", autocomplete: "off" });
  } else {
    input = element("textarea", { id, spellcheck: "false", placeholder: kind === "array" ? "[]" : kind === "object" ? "{}" : "" });
  }
  const read = () => {
    const text = input.value;
    if (kind === "string" && !Array.isArray(schema.enum)) return text === "" && !required ? undefined : text;
    if (text.trim() === "") return undefined;
    try { return JSON.parse(text); } catch { throw new Error(`${name} is not valid ${kind === "json" ? "JSON" : kind}`); }
  };
  return { nodes: [label, input, about].filter(Boolean), read, name };
}

function open_tool(tool) {
  const schema = tool.inputSchema || {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  const names = Object.keys(schema.properties || {});
  names.sort((a, b) => Number(required.includes(b)) - Number(required.includes(a)));
  const fields = names.map((name) => field(name, schema.properties[name] || {}, required.includes(name)));
  chosen = { tool, fields };
  byId("try-title").textContent = tool.name;
  byId("try-about").textContent = String(tool.description || "").slice(0, 600);
  const mayRepeat = tool.replay === "convergent";
  byId("try-warning").hidden = mayRepeat;
  byId("try-warning").textContent = mayRepeat ? "" : "This tool may change things. It runs for real, with your credential.";
  byId("try-fields").replaceChildren(...(fields.length ? fields.flatMap((one) => one.nodes) : [element("p", { class: "empty" }, "It takes no arguments.")]));
  byId("try-answer").hidden = true;
  byId("try-state").textContent = "";
  byId("try-run").disabled = false;
  byId("try").showModal();
}

byId("try-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { tool, fields } = chosen;
  const answer = byId("try-answer");
  try {
    const values = {};
    for (const one of fields) {
      const value = one.read();
      if (value !== undefined) values[one.name] = value;
    }
    byId("try-run").disabled = true;
    byId("try-state").textContent = "running";
    const began = performance.now();
    const { status, value } = await ask("POST", `/page/tool/${encodeURIComponent(tool.name)}`, { arguments: values });
    byId("try-state").textContent = `${status === 200 ? "answered" : `failed (${status})`} after ${duration(performance.now() - began)}`;
    const shown = value && value.ok === true ? value.data : value && value.error ? value.error : value;
    answer.textContent = JSON.stringify(shown, null, 2);
    answer.hidden = false;
  } catch (error) {
    byId("try-state").textContent = error.message;
  }
  byId("try-run").disabled = false;
});
byId("try-close").addEventListener("click", () => byId("try").close());

byId("filter").addEventListener("input", show_catalog);
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement && document.activeElement.tagName);
  if (event.key === "/" && !typing && !byId("dashboard").hidden && !byId("try").open) {
    event.preventDefault();
    byId("filter").focus();
  }
});

let looking = false;
async function look() {
  if (looking || !session) return;
  looking = true;
  try {
    latest = await demand("GET", "/page/data");
    const { status, metrics } = latest;
    const { health } = status;
    const now = Date.now();
    document.title = `${status.name} – Mainstay`;
    byId("host-name").textContent = status.name;
    byId("host-state").textContent = health.state;
    byId("host-state").className = `pill ${health.state}`;
    byId("host-facts").textContent = `pid ${status.pid} · ${status.mode} · up ${duration(health.uptime_ms)} · ${status.version}`;
    show_numbers(status);
    show_servers(health, now);
    show_approvals(latest.approvals);
    show_calls(latest.calls);
    show_faults(health);
    show_latency(metrics.methods, latest.latency_bounds_us);
    await read_catalog(health);
    if (!byId("trouble").textContent.startsWith("The call") && !byId("trouble").textContent.startsWith("Not answered")) trouble("");
  } catch (error) {
    if (error.status === 401) {
      session = null;
      ask_for_token("Your session has ended.");
    } else {
      byId("host-state").textContent = "unreachable";
      byId("host-state").className = "pill unreachable";
      trouble(`The host does not answer: ${error.message}`);
    }
  }
  looking = false;
}

setInterval(() => { if (document.visibilityState === "visible" && byId("sign-in").hidden) look(); }, EVERY_MS);
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") look(); });
begin().catch((error) => trouble(`The host does not answer: ${error.message}`));
