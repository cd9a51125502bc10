// Talking to the server, and making elements. No text is ever read as HTML.

const found = new URLSearchParams(location.hash.slice(1)).get("token");
if (found) {
  sessionStorage.setItem("gratis-token", found);
  history.replaceState(null, "", location.pathname); // the key does not stay in the address bar
}

export class Refusal extends Error {}

export async function call(name, body = {}) {
  let answer;
  try {
    answer = await fetch("/api/" + name, {
      method: "POST",
      headers: { "content-type": "application/json", "x-gratis-token": sessionStorage.getItem("gratis-token") || "" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Refusal("The studio does not answer. If it was stopped, start it again with “gratis studio”: a training goes on without it.");
  }
  const data = await answer.json().catch(() => ({ error: "the answer makes no sense" }));
  if (!answer.ok) throw new Refusal(sentence(data.error || "refused"));
  return data;
}

function sentence(text) {
  const capital = text[0].toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : capital + ".";
}

// el("p", {class: "soft"}, "text", child, …)
export function el(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "circle", "rect", "text", "g", "title"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

export function alertUser(error) {
  const place = document.getElementById("alert");
  if (!error) { place.hidden = true; return; }
  if (!(error instanceof Refusal)) console.error(error);
  place.textContent = error instanceof Refusal ? error.message : "The page failed: " + error.message;
  place.hidden = false;
}

// Runs work for a button: it cannot be pressed twice, and a refusal is shown.
export function pressed(work) {
  return async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    alertUser(null);
    try { await work(event); } catch (error) { alertUser(error); } finally { button.disabled = false; }
  };
}

let fields = 0;
export function field(label, input, hint) {
  input.id ||= "f" + ++fields;
  return el("div", { class: "field" }, el("label", { for: input.id }, label, hint ? el("small", {}, " " + hint) : null), input);
}

export function choice(options, value, attributes = {}) {
  const node = el("select", attributes, options.map(([key, text]) => el("option", { value: key }, text)));
  if (value !== undefined && value !== null) node.value = value;
  return node;
}

export function segments(name, label, options, value, changed) {
  return el("fieldset", { class: "field", style: { border: 0, padding: 0, margin: "0 0 .9rem" } },
    el("legend", { style: { fontSize: ".9rem", fontWeight: 600, padding: 0 } }, label),
    el("div", { class: "seg" }, options.map(([key, text]) => el("label", {},
      el("input", { type: "radio", name, value: key, checked: key === value, onchange: () => changed(key) }), el("span", {}, text)))));
}

export function copyable(label, text) {
  const button = el("button", { class: "plain", "aria-label": "Copy: " + label, onclick: async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return el("div", {}, el("span", { class: "small soft" }, label), el("div", { class: "copy" }, el("pre", { tabindex: "0" }, text), button));
}

export function numbers(items) {
  return el("div", { class: "numbers" }, items.filter(Boolean).map(([value, name]) => el("div", {}, el("b", {}, value), el("span", {}, name))));
}

export function short(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-4) return value.toExponential(1).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

export const percent = (share, digits = 0) => (100 * share).toFixed(digits) + " %";
