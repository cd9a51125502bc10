// Plan: sizes and a budget in, what privacy costs out. Nothing is opened or spent.
import { alertUser, call, choice, copyable, el, field, fill, numbers, pressed, segments, short } from "./api.js";
import { costChart, tradeoff } from "./chart.js";
import { show, state } from "./state.js";

const LADDER = (low, high) => { const found = []; for (let p = low; p <= high; p++) for (const s of [1, 2, 5]) found.push(s * 10 ** p); return found; };
const ROWS = LADDER(2, 6).concat(1e7), COLUMNS = LADDER(0, 2).concat(1000), DELTAS = [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4];
const COLOURS = { linear: "var(--m0)", logistic: "var(--m0)", additive: "var(--m1)", "random-features": "var(--m2)", mlp: "var(--m3)" };
const NAMES = { linear: "linear", logistic: "logistic", additive: "additive (curves)", "random-features": "random features", mlp: "network" };

function nearest(values, value) { return values.reduce((best, v, i) => (Math.abs(Math.log(v / value)) < Math.abs(Math.log(values[best] / value)) ? i : best), 0); }

function slider(label, hint, values, key, changed, whole) {
  const range = el("input", { type: "range", min: 0, max: values.length - 1, step: 1, "aria-label": label });
  const number = el("input", { type: "number", inputmode: "decimal", min: 0, step: "any" });
  const write = () => { range.value = nearest(values, state[key]); number.value = state[key]; range.setAttribute("aria-valuetext", String(state[key])); };
  range.addEventListener("input", () => { state[key] = values[range.value]; write(); number.removeAttribute("aria-invalid"); changed(); });
  number.addEventListener("input", () => {
    const value = Number(number.value), fine = number.value !== "" && value > 0 && Number.isFinite(value) && (!whole || Number.isInteger(value));
    number.setAttribute("aria-invalid", String(!fine));
    if (fine) { state[key] = value; range.value = nearest(values, value); changed(); }
  });
  const node = field(label, number, hint);
  number.remove();
  node.append(el("div", { class: "slider" }, range, number));
  write();
  return { node, write };
}

export function planView(root) {
  const picture = el("div"), models = el("div"), gains = el("div"), copies = el("div"), status = el("p", { class: "soft small", role: "status" });
  const answer = el("p", { role: "status" });
  let last = null, asked = 0, timer = null;

  const move = () => { clearTimeout(timer); timer = setTimeout(ask, 30); };
  const classes = el("input", { type: "number", min: 2, max: 1000, value: 2 });
  const classField = field("Classes", classes);
  classes.addEventListener("input", () => { const value = Number(classes.value); if (Number.isInteger(value) && value >= 2) { state.classes = value; move(); } });
  const setTask = (task) => { state.classes = task === "regression" ? null : Number(classes.value) || 2; classField.hidden = task === "regression"; if (!["additive", "random-features"].includes(state.model)) state.model = task === "regression" ? "linear" : "logistic"; move(); };
  const sliders = [
    slider("Rows", "n, counted as public", ROWS, "rows", move, true),
    slider("Columns", "d, after encoding", COLUMNS, "columns", move, true),
    slider("ε", "smaller is more private", state.epsilons, "epsilon", move, false),
    slider("δ", "below one over the rows", DELTAS, "delta", move, false),
  ];
  const relation = choice([["replace-one", "one row is exchanged"], ["zero-out", "one row is taken out"]], state.neighbouring);
  relation.addEventListener("change", () => { state.neighbouring = relation.value; move(); });
  const people = el("input", { type: "number", min: 1, step: 1, value: state.rowsPerPerson });
  people.addEventListener("input", () => { const value = Number(people.value); if (Number.isInteger(value) && value >= 1) { state.rowsPerPerson = value; move(); } });
  const loss = el("input", { type: "number", min: 0, step: "any", value: state.loss });
  const task = el("div");

  async function ask() {
    const mine = ++asked, begun = performance.now();
    if (last) picture.classList.toggle("faded", false);
    try {
      const found = await call("picture", { rows: state.rows, columns: state.columns, classes: state.classes, epsilon: state.epsilon, delta: state.delta, neighbouring: state.neighbouring, rows_per_person: state.rowsPerPerson, model: state.model });
      if (mine !== asked) return;
      alertUser(null);
      last = found;
      draw(found);
      root.dataset.answered = Math.round(performance.now() - begun);
      root.dataset.pending = Object.values(found.models).reduce((sum, m) => sum + m.pending, 0);
      if (root.dataset.pending !== "0" && !root.hidden) timer = setTimeout(ask, 250);
    } catch (error) { if (mine === asked) alertUser(error); }
  }

  function draw(found) {
    const names = Object.keys(found.models);
    if (!names.includes(state.model)) state.model = names[0];
    const series = names.map((name) => { const m = found.models[name]; return { name: NAMES[name], colour: COLOURS[name], points: m.points, chosen: m.chosen?.cost, pending: m.pending, strong: name === state.model }; });
    const unit = names.map((n) => found.models[n].unit).find(Boolean) || (state.classes ? "log loss" : "R²");
    fill(picture, costChart(series, state.epsilon, unit, picture.clientWidth || 640));
    fill(models, el("table", {}, el("thead", {}, el("tr", {}, ["Model", `Loss of ${unit}`, "Range assumed"].map((t) => el("th", {}, t)))), el("tbody", {}, names.map((name) => {
      const m = found.models[name], cost = m.chosen?.cost;
      const radio = el("input", { type: "radio", name: "model", value: name, checked: name === state.model, onchange: () => { state.model = name; draw(last); move(); } });
      return el("tr", { class: name === state.model ? "chosen" : "" },
        el("td", {}, el("label", {}, radio, el("span", { class: "dot", style: { background: COLOURS[name] } }), NAMES[name])),
        el("td", { class: "num" }, cost ? (m.chosen.approximate ? "≈ " : "") + short(cost.value, 2) : m.chosen?.error ? "not possible" : m.pending ? "planning…" : "not predicted"),
        el("td", { class: "num soft" }, cost ? `${short(cost.low, 2)} to ${short(cost.high, 2)}` : ""));
    }))));
    const waiting = series.reduce((sum, s) => sum + s.pending, 0);
    const error = found.models[state.model].chosen?.error;
    const rough = names.some((name) => found.models[name].points.some((p) => p.approximate));
    status.textContent = error || (rough ? "≈ is a first figure in closed form, without the effect of clipping; it is being replaced by the simulated plan…" : waiting ? "Simulating the rest of the picture…" : "Against the same model without privacy. Which model fits the data better, sizes cannot tell.");
    const a = found.attacker;
    fill(gains, found.warning ? el("p", { class: "note warn" }, found.warning) : null,
      el("div", { class: "row", style: { alignItems: "center" } }, el("div", {}, numbers([[a.right, "of answers right, at most"], [a.recognised, "recognised at 1 % false alarms"], state.rowsPerPerson > 1 ? [short(a.person_epsilon), `ε for a person with ${state.rowsPerPerson} rows`] : [short(a.mu), "μ, the Gaussian-DP parameter"]]), a.words.map((w) => el("p", {}, w))), el("div", { style: { flex: "0 1 15rem" } }, tradeoff(a.curve))));
    fill(copies, copyable("Command", found.command), copyable("Python", found.python));
  }

  const search = el("button", { class: "plain", onclick: pressed(async () => {
    answer.textContent = "Searching…";
    try {
      answer.textContent = (await call("needed", { rows: state.rows, columns: state.columns, classes: state.classes, epsilon: state.epsilon, delta: state.delta, neighbouring: state.neighbouring, model: state.model, loss: Number(loss.value) })).words;
      state.loss = Number(loss.value);
    } catch (error) { answer.textContent = ""; throw error; }
  }) }, "Search");

  fill(root, el("h1", {}, "What will privacy cost?"), el("p", { class: "lead" }, "From sizes and a budget alone. No data is opened and nothing is spent."),
    el("div", { class: "grid sides" },
      el("div", { class: "card stick" }, el("h2", {}, "Sizes and budget"), task, classField, sliders.map((s) => s.node), field("Whose change is hidden", relation), field("Rows of one person", people, "at most")),
      el("div", { class: "grid" },
        el("div", { class: "card" }, el("h2", {}, "Predicted loss to privacy"), picture, models, status),
        el("div", { class: "card" }, el("h2", {}, "What an attacker could tell"), gains),
        el("div", { class: "grid two" },
          el("div", { class: "card" }, el("h2", {}, "How many rows, or which ε?"), el("div", { class: "row" }, field("Lose at most", loss), el("div", { class: "field", style: { flex: "0 0 auto" } }, search)), answer),
          el("div", { class: "card" }, el("h2", {}, "The same without this page"), copies)),
        el("div", {}, el("button", { class: "main", onclick: () => show("data") }, "Next: choose the data")))));

  return { shown() {
    fill(task, segments("task", "Task", [["regression", "a number"], ["classification", "classes"]], state.classes ? "classification" : "regression", setTask));
    classField.hidden = !state.classes;
    if (state.classes) classes.value = state.classes;
    sliders.forEach((s) => s.write());
    relation.value = state.neighbouring;
    people.value = state.rowsPerPerson;
    ask();
  } };
}
