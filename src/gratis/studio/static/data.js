// Data: which file, how its columns are read, what one person is. Names and types only; no cell is shown.
import { alertUser, call, choice, el, field, fill, numbers, pressed } from "./api.js";
import { refresh, show, state } from "./state.js";

const KINDS = { numeric: "a number", boolean: "yes or no", categorical: "a category", ordered: "an ordered category", date: "a date", ignored: "left out" };
const DEFAULTS = { categorical: { kind: "categorical", buckets: 32 }, ordered: { kind: "ordered", levels: ["low", "high"] }, date: { kind: "date", parts: ["year", "month", "weekday"] } };

export function dataView(root) {
  const columns = el("div"), facts = el("div");
  const file = choice([], null);
  const target = choice([], null), task = choice([["auto", "decided by the target's type"], ["regression", "a number (regression)"], ["classification", "classes"]], "auto");
  const missingTarget = choice([["refuse", "are refused"], ["leave-out", "contribute nothing"]], "refuse");
  missingTarget.addEventListener("change", () => { if (state.table) state.table.missingTarget = missingTarget.value; });
  const classes = el("input", { placeholder: "for example: no, yes" });
  const relation = choice([["replace-one", "one row is exchanged for another"], ["zero-out", "one row contributes nothing"]], state.neighbouring);
  const people = el("input", { type: "number", min: 1, step: 1, value: state.rowsPerPerson });
  const next = el("button", { class: "main", onclick: pressed(proceed) }, "Next: the budget");
  const sizes = el("button", { class: "plain", onclick: pressed(async () => { await encode(); takeSizes(); show("plan"); }) }, "Plan with these sizes");
  const rest = el("div", { hidden: true });

  file.addEventListener("change", () => open(file.value).catch(alertUser));
  target.addEventListener("change", () => { state.table.target = target.value; drawColumns(); encode().catch(alertUser); });
  task.addEventListener("change", () => { state.table.task = task.value; });
  classes.addEventListener("input", () => { state.table.classes = classes.value; });
  relation.addEventListener("change", () => { state.neighbouring = relation.value; });
  people.addEventListener("input", () => { const value = Number(people.value); if (Number.isInteger(value) && value >= 1) state.rowsPerPerson = value; });

  async function open(name) {
    alertUser(null);
    rest.hidden = true;
    state.table = null;
    if (!name) return;
    fill(columns, el("p", { class: "soft", role: "status" }, "Reading names and types, counting rows…"));
    const found = await call("table", { file: name });
    const readings = Object.fromEntries(found.columns.map((c) => [c.name, c.reading]));
    const targets = found.columns.filter((c) => c.target);
    state.table = { ...found, file: name, readings, target: targets.at(-1)?.name || "", task: "auto", classes: "", missingTarget: missingTarget.value };
    fill(target, targets.map((c) => el("option", { value: c.name }, c.name)));
    target.value = state.table.target;
    task.value = "auto";
    classes.value = "";
    rest.hidden = false;
    drawColumns();
    await encode();
  }

  function drawColumns() {
    const t = state.table;
    fill(columns, el("table", { class: "stack" }, el("thead", {}, el("tr", {}, ["Column", "Type in the file", "Read as", "Becomes"].map((h) => el("th", {}, h)))),
      el("tbody", {}, t.columns.map((c) => {
        if (c.name === t.target) return el("tr", { class: "chosen" }, el("td", {}, el("b", {}, c.name)), el("td", { "data-label": "type" }, c.type), el("td", { "data-label": "read as" }, "the target"), el("td"));
        const reading = t.readings[c.name], kind = choice(t.kinds.map((k) => [k, KINDS[k] || k]), reading.kind, { "aria-label": `How ${c.name} is read` });
        kind.addEventListener("change", () => { t.readings[c.name] = kind.value === c.reading.kind ? c.reading : DEFAULTS[kind.value] || { kind: kind.value }; drawColumns(); encode().catch(alertUser); });
        return el("tr", {}, el("td", {}, el("b", {}, c.name), c.warning ? el("div", { class: "small warn" }, c.warning) : c.undecided && reading.kind !== "ignored" ? el("div", { class: "small warn" }, "choose how its levels are known") : null), el("td", { "data-label": "type" }, c.type),
          el("td", { "data-label": "read as" }, el("div", { class: "reading" }, kind, ["categorical", "ordered"].includes(reading.kind) ? levels(c.name) : null, reading.kind === "numeric" ? missing(c.name) : null)),
          el("td", { "data-label": "becomes", "data-width": c.name }, ""));
      }))));
  }

  function levels(name) {
    const t = state.table, reading = t.readings[name], ordered = reading.kind === "ordered";
    const before = reading.private ? "private" : reading.levels ? "levels" : "buckets";
    const buckets = el("input", { type: "number", min: 2, max: 65536, value: reading.buckets || 32, "aria-label": `Buckets for ${name}` });
    const listed = el("input", { value: (reading.levels || []).join(", "), placeholder: "public levels, separated by commas", "aria-label": `Public levels of ${name}` });
    const how = choice(ordered ? [["levels", "public levels, lowest first"]] : [["buckets", "hashed into buckets"], ["levels", "by a public list"], ["private", "found within the budget"]], before, { "aria-label": `How the levels of ${name} are known` });
    const changed = () => {
      const list = listed.value.split(",").map((part) => part.trim()).filter(Boolean);
      buckets.hidden = how.value !== "buckets"; listed.hidden = how.value !== "levels";
      t.readings[name] = { kind: reading.kind, ...(how.value === "levels" ? { levels: list } : how.value === "private" ? { private: true } : { buckets: Number(buckets.value) || 32 }) };
      if (how.value !== "levels" || list.length) encode().catch(alertUser);
    };
    for (const input of [buckets, listed, how]) input.addEventListener("change", changed);
    buckets.hidden = before !== "buckets"; listed.hidden = before !== "levels";
    return [how, buckets, listed];
  }

  function missing(name) {
    const t = state.table;
    const input = el("input", { type: "number", step: "any", placeholder: "where missing: released centre", "aria-label": `Public number where ${name} is missing`, value: t.readings[name].missing ?? "" });
    input.addEventListener("change", () => { t.readings[name] = input.value === "" ? { kind: "numeric" } : { kind: "numeric", missing: Number(input.value) }; });
    return input;
  }

  async function encode() {
    const t = state.table;
    const found = await call("encoded", { columns: t.readings, target: t.target });
    t.encoded = found.columns;
    alertUser(null);
    for (const cell of columns.querySelectorAll("[data-width]")) { const k = found.widths[cell.dataset.width]; cell.textContent = k === null ? "known later" : k === 0 ? "nothing" : k === 1 ? "1 column" : `${k} columns`; }
    fill(facts, numbers([[t.rows.toLocaleString("en"), "rows (counted as public)"], [String(t.columns.length), "columns in the file"], [String(found.columns), "columns after encoding"]]));
  }

  function takeSizes() {
    const t = state.table, type = t.columns.find((c) => c.name === t.target).type, listed = t.classes.split(",").filter((c) => c.trim()).length;
    state.rows = Math.max(2, t.rows);
    state.columns = Math.max(1, t.encoded);
    const classification = t.task === "classification" || listed > 1 || (t.task === "auto" && /text|truth|bool|categor/.test(type));
    state.classes = classification ? Math.max(2, listed) : null;
    while (state.delta * state.rows >= .5) state.delta /= 10;
    state.delta = Number(state.delta.toPrecision(3));
  }

  async function proceed() { await encode(); takeSizes(); show("spend"); }

  fill(rest, el("div", { class: "grid" },
    el("div", { class: "grid two" },
      el("div", { class: "card" }, el("h2", {}, "What is predicted"), field("Target", target, "the column to predict"), field("Task", task), field("Classes", classes, "public list; empty: those that occur count as public"), field("Rows without a target", missingTarget)),
      el("div", { class: "card" }, el("h2", {}, "Unit of privacy"), el("p", { class: "soft small" }, "The guarantee is for one row. If a person may have several, say so: what an attacker can tell is then stated for the person."), field("Whose change is hidden", relation), field("Rows of one person", people, "at most"))),
    el("div", { class: "card" }, el("h2", {}, "Columns"), facts, el("p", { class: "soft small" }, "Names and types only: the page never shows a cell. Levels of categories are not read from private rows; list those that are public, or let them be hashed."), columns),
    el("div", { class: "links" }, next, sizes)));
  fill(root, el("h1", {}, "Which table?"), el("p", { class: "lead" }, "Files below the folder that the studio was started in."),
    el("div", { class: "grid" }, el("div", { class: "card" }, field("File", file), el("button", { class: "plain", onclick: pressed(async () => { await refresh(); list(); }) }, "Look for files again")), rest));

  function list() {
    fill(file, el("option", { value: "" }, state.tables.length ? "choose…" : "no tables here"), state.tables.map((name) => el("option", { value: name }, name)));
    if (state.table) file.value = state.table.file;
  }
  list();
  return { shown() { relation.value = state.neighbouring; people.value = state.rowsPerPerson; } };
}
