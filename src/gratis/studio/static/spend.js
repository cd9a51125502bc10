// Spend: the ledger, the plan, one confirmation, progress, and what came of it.
import { alertUser, call, choice, copyable, el, field, fill, numbers, percent, pressed, short } from "./api.js";
import { refresh, show, state } from "./state.js";

export function spendView(root) {
  const ledgers = el("div"), form = el("div"), planned = el("div", { role: "status" }), run = el("div", { "aria-live": "polite" }), history = el("div");
  let followed = null, names = [], draft = {};

  const meter = (b, will) => {
    const left = b.left_share, next = Math.min(left, will || 0);
    return el("div", { class: "meter", role: "img", "aria-label": `${percent(left)} of the budget is left` },
      el("i", { style: { width: 100 * (left - next) + "%" } }), next ? el("i", { class: "will", style: { width: 100 * next + "%" } }) : null);
  };

  function drawLedgers() {
    const books = state.ledgers;
    fill(ledgers, el("div", { class: "card" }, el("h2", {}, "Ledger"),
      books.length ? books.map((book) => el("div", {}, el("b", {}, book.file), book.error ? el("p", { class: "bad" }, book.error) : null,
        book.budgets.map((b) => el("div", { class: "field" }, el("div", {}, b.name, el("span", { class: "soft small" }, `  ${b.facts.budget}`)), meter(b),
          el("div", { class: "small soft" }, `${percent(b.left_share)} left. Spent: ${b.facts.spent}. Left: ${b.facts.left}.`, b.never_committed ? el("span", { class: "warn" }, ` ${b.never_committed} reserved and never finished: spent.`) : null),
          b.releases.length ? el("details", { class: "small" }, el("summary", {}, `${b.reservations} release${b.reservations === 1 ? "" : "s"}`), b.facts.share ? el("p", { class: "soft" }, `Spent is ${b.facts.share}.`) : null, el("div", { class: "scroll" }, el("table", { class: "releases" }, el("tbody", {}, b.releases.map((r) => el("tr", {}, el("td", { class: "num" }, r.time.slice(0, 16).replace("T", " ")), el("td", {}, r.purpose), el("td", {}, r.model || ""), el("td", {}, r.price), el("td", { class: r.committed ? "num soft" : "warn" }, r.committed ? (r.released || "").slice(0, 12) : "never committed"))))))) : null))))
        : el("p", {}, "There is no ledger yet. It keeps what a data set may spend in all, across models and days."),
      el("details", { open: !books.length }, el("summary", {}, "Give a data set its budget"), newBudget())));
  }

  function newBudget() {
    const name = el("input", { value: state.table ? state.table.file.replace(/^.*\//, "").replace(/\..*$/, "") : "" }), file = el("input", { value: state.ledgers[0]?.file || "budgets.ledger" });
    const epsilon = el("input", { type: "number", step: "any", min: 0, value: 3 * state.epsilon }), delta = el("input", { type: "number", step: "any", min: 0, value: state.delta });
    return el("div", {}, el("div", { class: "row" }, field("Name of the data set", name), field("Ledger file", file)), el("div", { class: "row" }, field("ε in all", epsilon), field("δ in all", delta)),
      el("p", { class: "small soft" }, "A budget cannot be changed later, and nothing that was spent comes back."),
      el("button", { class: "plain", id: "create-budget", onclick: pressed(async () => {
        state.ledgers = (await call("create-budget", { name: name.value, file: file.value, epsilon: Number(epsilon.value), delta: Number(delta.value), neighbouring: state.neighbouring })).ledgers;
        drawLedgers(); drawForm();
      }) }, "Create the budget"));
  }

  function drawForm() {
    const t = state.table;
    if (!t) { fill(form, el("div", { class: "card" }, el("h2", {}, "The fit"), el("p", {}, "Choose a table first."), el("button", { class: "main", onclick: () => show("data") }, "Choose the data"))); return; }
    const options = state.ledgers.flatMap((book) => book.budgets.map((b) => [JSON.stringify([book.file, b.name]), `${b.name} (${book.file})`]));
    if (draft.table !== t) { draft = { table: t, epsilon: state.epsilon, delta: state.delta }; fill(planned); }
    if (draft.name && names.includes(draft.name)) draft.name = null; // that run exists now
    const keep = (key, input) => { if (draft[key] !== undefined && draft[key] !== null) input.value = draft[key]; input.addEventListener("input", () => { draft[key] = input.value; fill(planned); }); return input; };
    const budget = choice(options, null), model = choice([["auto", "chosen by the sizes"], ["linear", "linear"], ["logistic", "logistic"], ["additive", "additive (curves)"], ["random-features", "random features"]], "auto");
    const epsilon = el("input", { type: "number", step: "any", min: 0, value: state.epsilon }), delta = el("input", { type: "number", step: "any", min: 0, value: state.delta });
    const hold = choice([["0", "none"], ["0.1", "10 % of the rows"], ["0.2", "20 % of the rows"]], "0"), name = el("input", { value: freeName(t.file) });
    for (const [key, input] of Object.entries({ budget, model, epsilon, delta, hold, name })) keep(key, input); // what was typed outlives a redraw
    if (!budget.value && options.length) budget.value = options[0][0];
    fill(form, el("div", { class: "card" }, el("h2", {}, "The fit"), el("p", {}, el("b", {}, t.target), ` from ${t.file}, ${t.rows.toLocaleString("en")} rows`),
      el("div", { class: "row" }, field("ε", epsilon), field("δ", delta)), el("div", { class: "row" }, field("Model", model), field("Held out for a private score", hold)), el("div", { class: "row" }, field("Paid from", budget), field("Name of this run", name)),
      options.length ? null : el("p", { class: "note" }, "Give the data set a budget first, in the ledger."),
      el("button", { class: "main", id: "plan-fit", disabled: !options.length, onclick: pressed(async () => {
        fill(planned, el("p", { class: "soft" }, "Planning from public facts…"));
        try {
          const [ledger, key] = JSON.parse(budget.value);
          drawPlan(await call("plan", { file: t.file, target: t.target, task: t.task, classes: t.classes, columns: t.readings, missing_target: t.missingTarget, epsilon: Number(epsilon.value), delta: Number(delta.value), neighbouring: state.neighbouring, model: model.value, hold_out: Number(hold.value), ledger, budget: key, name: name.value }));
        } catch (error) { fill(planned); throw error; }
      }) }, "Show the plan"), el("span", { class: "soft small" }, "  Spends nothing.")));
  }

  function freeName(file) {
    const stem = file.replace(/^.*\//, "").replace(/\..*$/, "").replace(/[^\w .()+-]/g, "-").replace(/^[^\w]+/, "") || "fit", taken = new Set(names);
    for (let i = 1; ; i++) if (!taken.has(`${stem}-${i}`)) return `${stem}-${i}`;
  }

  function drawPlan(p) {
    const enough = p.fits !== false;
    fill(planned, el("div", { class: "card" }, el("h2", {}, "The plan"),
      numbers([p.cost ? [`${short(p.cost.low, 2)} to ${short(p.cost.high, 2)}`, `predicted loss of ${p.cost.unit} to privacy`] : ["not predicted", "loss to privacy"], [p.model, "model"], [`${p.rows.toLocaleString("en")} × ${p.columns}`, "rows × encoded columns"]]),
      el("details", {}, el("summary", {}, "All that was planned, and why"), p.words.map((w) => el("p", { class: "small" }, w)), p.assumptions.map((w) => el("p", { class: "small soft" }, "Assumed: " + w + "."))),
      el("p", { id: "price" }, `This run takes ${p.price} from the budget “${p.status.name}”.`), meter(p.status, p.share), el("p", { class: "small soft" }, "Striped: this run. What is left is measured in μ²."),
      enough ? null : el("p", { class: "note bad" }, `Left is ${p.status.facts.left}: the ledger will refuse this run.`),
      p.worthless ? el("p", { class: "note warn", id: "worthless" }, `${p.worthless}.`) : null,
      copyable("The same as a command", p.command),
      el("button", { class: "main", id: "spend-button", disabled: !enough, onclick: () => confirm(p) }, `Spend ε = ${p.epsilon}, δ = ${p.delta}`)));
    planned.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "nearest" });
  }

  function confirm(p) {
    const dialog = el("dialog", { "aria-labelledby": "confirm-title" }, el("h2", { id: "confirm-title" }, `Spend ε = ${p.epsilon}, δ = ${p.delta}?`),
      el("p", {}, `This trains a private model on ${p.rows.toLocaleString("en")} rows and takes ${p.price} from the budget “${p.status.name}”.`), p.worthless ? el("p", { class: "note warn" }, `${p.worthless}.`) : null, el("p", {}, "What is spent does not come back, also if the training is stopped."),
      el("div", { class: "links" }, el("button", { class: "main", id: "confirm-button", onclick: pressed(async () => {
        dialog.close();
        const started = await call("spend", { ticket: p.ticket, yes: true });
        fill(planned);
        scrollTo(0, 0);
        follow(started.name);
      }) }, p.worthless ? "Spend it all the same" : "Yes, spend it"), el("button", { class: "plain", onclick: () => dialog.close() }, "Not now")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  async function follow(name) {
    followed = name;
    let misses = 0;
    while (followed === name) {
      try {
        const r = await call("run", { name });
        if (misses) { alertUser(null); misses = 0; }
        drawRun(r);
        if (r.state !== "running") { followed = null; fill(planned); await reload(); return; }
      } catch (error) { misses++; alertUser(error); if (misses > 600) return; }
      await new Promise((wake) => setTimeout(wake, misses ? 2000 : 700));
    }
  }

  function drawRun(r) {
    const open = run.querySelector("details")?.open, now = r.steps.findIndex(([, done], i) => done && !(r.steps[i + 1] || [])[1]);
    fill(run, el("div", { class: "card", id: "run-card", "data-state": r.state }, el("h2", {}, r.state === "running" ? `Training ${r.name}…` : r.state === "done" ? `${r.name} is done` : `${r.name} left no model`),
      r.state === "failed" ? r.words.map((w) => el("p", { class: "bad" }, w)) : el("ol", { class: "steps" }, r.steps.map(([text, done], i) => el("li", { class: r.state === "running" && i === now ? "now" : done ? "done" : "" }, text))),
      r.state === "running" ? el("p", { class: "small soft" }, "You may close this page, or stop the studio: the training goes on, and the model is saved first of all.") : null,
      r.state === "done" ? el("div", { class: "links" }, el("button", { class: "main", onclick: () => show("look", r.files.model) }, "Look at the model"), ...Object.entries(r.links).map(([kind, url]) => el("a", { href: url, target: "_blank", rel: "noopener", class: "file-link" }, kind === "report" ? "Open the report" : `Download the ${kind}`))) : null,
      el("details", { open }, el("summary", {}, "What it says"), el("pre", { tabindex: "0" }, r.log.join("\n") || "nothing yet"))));
  }

  async function reload() {
    await refresh();
    const found = await call("runs");
    names = found.runs.map((r) => r.name);
    drawLedgers();
    drawForm();
    fill(history, found.runs.length ? el("div", { class: "card" }, el("h2", {}, "Runs in this folder"), el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, found.runs.map((r) => el("tr", {}, el("td", {}, el("button", { class: "plain small", onclick: () => follow(r.name) }, r.name)), el("td", {}, r.target), el("td", { class: "num" }, r.started), el("td", { class: r.state === "failed" ? "bad" : "" }, { running: "training", done: "done", failed: "no model" }[r.state])))))) ) : null);
    return found.running;
  }

  fill(root, el("h1", {}, "Spend"), el("p", { class: "lead" }, "The ledger is asked first. Model and certificate are on the disk before anything else is tried."),
    el("div", { class: "grid two" }, el("div", { class: "grid" }, run, form, planned), el("div", { class: "grid" }, ledgers, history)));
  return { shown() { reload().then((running) => { if (running && followed !== running) follow(running); }).catch(alertUser); } };
}
