// Look: what a model learnt, what its certificate says, and what it predicts for typed values.
import { alertUser, call, choice, copyable, el, field, fill, numbers, percent, pressed, short } from "./api.js";
import { bars, curvePicture, surfacePicture, tradeoff } from "./chart.js";
import { refresh, state } from "./state.js";

const MOST = 15; // rows before the rest is folded

export function lookView(root) {
  const file = choice([], null), place = el("div", { class: "grid" });
  file.addEventListener("change", () => open(file.value).catch(alertUser));

  async function open(name) {
    alertUser(null);
    fill(place);
    if (!name) return;
    fill(place, el("p", { class: "soft", role: "status" }, "Reading the model…"));
    let m;
    try { m = await call("model", { file: name }); } catch (error) { fill(place); throw error; }
    const c = m.certificate;
    fill(place,
      el("div", { class: "card" }, el("h2", {}, m.title), numbers([[short(c.epsilon, 4), "ε, proved"], [short(c.delta), "δ"], [c.mu === null ? "–" : short(c.mu, 4), "μ"], [c.neighbouring, "relation"], m.rows ? [m.rows.toLocaleString("en"), "rows"] : null, ...m.scores.map((s) => [`${short(s.value, 3)}`, `${s.name}: ${s.origin} (${short(s.low, 3)} to ${short(s.high, 3)})`])]),
        el("p", { class: c.problems.length ? "bad" : "good" }, c.problems.length ? "The certificate DOES NOT verify: " + c.problems[0] : "✓ The certificate was computed again and holds."),
        m.audit ? el("p", { class: m.audit.alarm ? "bad" : "soft" }, "Audit: " + m.audit.verdict) : null,
        el("div", { class: "links" }, Object.entries(m.links).map(([kind, url]) => el("a", { href: url, target: "_blank", rel: "noopener" }, kind === "report" ? "Open the report" : `Download the ${kind}`))),
        m.words.length ? el("details", {}, el("summary", {}, "The plan it was trained by"), m.words.map((w) => el("p", { class: "small" }, w))) : null),
      learnt(m), predictor(name, m),
      m.attacker ? el("div", { class: "card" }, el("h2", {}, "What an attacker could tell"), el("div", { class: "row", style: { alignItems: "center" } }, el("div", {}, m.attacker.words.map((w) => el("p", {}, w))), el("div", { style: { flex: "0 1 15rem" } }, tradeoff(m.attacker.curve)))) : null,
      el("div", { class: "card" }, el("h2", {}, "The same without this page"), copyable("Command", `gratis predict ${name} FILE`), copyable("Python", `import gratis\nmodel = gratis.load_model(${JSON.stringify(name)}).estimator`)));
  }

  function learnt(m) {
    if (m.curves) {
      const flat = m.curves.flatMap((c) => c.effect.flat()), most = Math.max(1e-9, ...flat.map(Math.abs)), limits = [Math.min(0, ...flat) - .12 * most, Math.max(0, ...flat) + .12 * most];
      const strongest = Math.max(1e-9, ...m.surfaces.flatMap((s) => s.effect.flat().map(Math.abs)));
      return el("div", { class: "card" }, el("h2", {}, "What it learnt"), el("p", { class: "soft small" }, `${m.classes ? (m.classes.length > 2 ? "Effect on the score of each class" : "Effect on the log-odds") : "Effect on the prediction"}, with bands of two deviations; the most important first, all on one scale.`),
        el("div", { class: "shapes" }, m.curves.map((c) => curvePicture(c, limits, m.classes))), m.surfaces.length ? [el("h2", { style: { marginTop: "1rem" } }, "Pairs"), el("div", { class: "shapes" }, m.surfaces.map((s) => surfacePicture(s, strongest)))] : null);
    }
    if (m.coefficients) {
      const rows = m.coefficients.map((c) => [c.name, c.effects.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0), c.values.map((v) => short(v)).join(", ") + (c.interval ? ` (${short(c.interval[0])} to ${short(c.interval[1])})` : "")]);
      return el("div", { class: "card" }, el("h2", {}, "Coefficients"), el("p", { class: "soft small" }, "Bars: effect of one released deviation of the column. Numbers: in the units of the table" + (m.coefficients[0]?.interval ? ", with 95 % intervals." : ".")),
        el("div", { class: "scroll" }, bars(rows.slice(0, MOST))), rows.length > MOST ? el("details", {}, el("summary", {}, `${rows.length - MOST} smaller ones`), el("div", { class: "scroll" }, bars(rows.slice(MOST)))) : null);
    }
    return el("div", { class: "card" }, el("h2", {}, "What it learnt"), el("p", {}, "This kind of model has no parameters that can be read one by one; its predictions can be tried below."));
  }

  function predictor(name, m) {
    const inputs = new Map(), result = el("div", { role: "status" });
    const form = el("form", { onsubmit: (event) => event.preventDefault() }, el("div", { class: "row" }, m.inputs.map((i) => {
      const input = i.levels ? choice([["", "missing"], ...i.levels.map((l) => [l, l])], "") : i.kind === "boolean" ? choice([["", "missing"], ["true", "yes"], ["false", "no"]], "") : el("input", { inputmode: i.kind === "numeric" ? "decimal" : "text", autocomplete: "off" });
      inputs.set(i.name, input);
      return field(i.name, input);
    })), el("button", { class: "main", id: "predict-button", onclick: pressed(async () => {
      const values = Object.fromEntries([...inputs].map(([key, input]) => [key, input.value]));
      let p;
      try { p = await call("predict", { file: name, values }); } catch (error) { fill(result); throw error; }
      const parts = p.parts && Object.entries(p.parts).filter(([key]) => key !== "constant").map(([key, v]) => [key, v.length === 1 ? v[0] : null]).filter(([, v]) => v !== null && Math.abs(v) > 0);
      fill(result, numbers([[typeof p.prediction === "number" ? short(p.prediction, 4) : p.prediction, "prediction"], ...Object.entries(p.probabilities || {}).map(([key, v]) => [percent(v, 1), `probability of ${key}`])]),
        parts?.length ? el("details", {}, el("summary", {}, "What each column added"), el("div", { class: "scroll" }, bars(parts.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 20).map(([key, v]) => [key, v, short(v)])))) : null);
    }) }, "Predict"));
    return el("div", { class: "card" }, el("h2", {}, "Predict for typed values"), el("p", { class: "soft small" }, "An empty value counts as missing. What is typed stays on this machine."), form, result);
  }

  fill(root, el("h1", {}, "Look at a model"), el("p", { class: "lead" }, "Everything here was released and is covered by the model's certificate."), el("div", { class: "grid" }, el("div", { class: "card" }, field("Model file", file)), place));
  return { async shown(wanted) {
    try {
      await refresh();
      const before = wanted || file.value;
      fill(file, el("option", { value: "" }, state.models.length ? "choose…" : "no models here yet"), state.models.map((n) => el("option", { value: n }, n)));
      file.value = before;
      if (wanted) await open(wanted);
    } catch (error) { alertUser(error); }
  } };
}
