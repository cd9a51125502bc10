// Pictures, drawn as SVG from numbers.
import { el, short } from "./api.js";

function path(points) { return points.map(([x, y], i) => (i ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1)).join(""); }

function ticks(top) {
  const raw = top / 4, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
}

// series: [{name, colour, points: [{epsilon, value, low, high}], chosen, strong}]
export function costChart(series, epsilon, unit, width) {
  const W = Math.max(300, width), H = Math.min(360, Math.max(240, W * .5)), L = 52, R = 12, T = 14, B = 38;
  const all = series.flatMap((s) => s.points);
  const most = Math.max(1e-9, ...all.map((p) => p.value));
  const top = Math.min(Math.max(...all.map((p) => p.high), 1e-9), 1.6 * most) * 1.05;
  const low = Math.log(Math.min(.1, epsilon)), span = Math.log(Math.max(10, epsilon)) - low;
  const x = (e) => L + (W - L - R) * (Math.log(e) - low) / span, y = (v) => T + (H - T - B) * (1 - Math.min(v, top) / top);
  const marks = ticks(top);
  const words = series.filter((s) => s.chosen).map((s) => `${s.name} ${short(s.chosen.value, 2)}`).join(", ");
  return el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Predicted loss of ${unit} to privacy against epsilon; at ${epsilon}: ${words}` },
    marks.map((v) => [el("line", { class: "axis", x1: L, x2: W - R, y1: y(v), y2: y(v) }), el("text", { x: L - 7, y: y(v) + 4, "text-anchor": "end" }, short(v, 2))]),
    [.1, .3, 1, 3, 10].map((e) => el("text", { x: x(e), y: H - B + 17, "text-anchor": "middle" }, String(e))),
    el("text", { x: (L + W - R) / 2, y: H - 4, "text-anchor": "middle" }, "ε  (more privacy ← → less privacy)"),
    el("line", { x1: x(epsilon), x2: x(epsilon), y1: T, y2: H - B, stroke: "var(--soft)", "stroke-dasharray": "3 4" }),
    series.filter((s) => s.strong && s.points.length > 1).map((s) => el("path", { d: path([...s.points.map((p) => [x(p.epsilon), y(p.high)]), ...s.points.map((p) => [x(p.epsilon), y(p.low)]).reverse()]) + "Z", fill: s.colour, opacity: .14 })),
    series.map((s) => el("path", { d: path(s.points.map((p) => [x(p.epsilon), y(p.value)])), fill: "none", stroke: s.colour, "stroke-width": s.strong ? 3 : 1.8, "stroke-linejoin": "round", "stroke-dasharray": s.pending ? "5 4" : null })),
    series.filter((s) => s.chosen).map((s) => el("circle", { cx: x(epsilon), cy: y(s.chosen.value), r: s.strong ? 6 : 4.5, fill: s.colour, stroke: "var(--card)", "stroke-width": 2 })),
    all.length ? null : el("text", { x: (L + W) / 2, y: H / 2, "text-anchor": "middle" }, "planning…"));
}

export function tradeoff(curve) {
  const S = 230, L = 34, B = 34, T = 6, R = 8, x = (v) => L + (S - L - R) * v, y = (v) => T + (S - T - B) * (1 - v);
  const points = curve.map(([a, b]) => [x(a), y(b)]);
  return el("svg", { viewBox: `0 0 ${S} ${S}`, role: "img", "aria-label": "Records recognised against false alarms: no attack gets above the curve", style: { maxWidth: "17rem" } },
    el("path", { d: path(points) + `L${x(1)} ${y(1)}L${x(0)} ${y(1)}Z`, fill: "var(--m0)", opacity: .12 }),
    [0, .5, 1].map((v) => [el("line", { class: "axis", x1: L, x2: S - R, y1: y(v), y2: y(v) }), el("text", { x: L - 5, y: y(v) + 4, "text-anchor": "end" }, v), el("text", { x: x(v), y: S - B + 15, "text-anchor": "middle" }, v)]),
    el("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), stroke: "var(--soft)", "stroke-dasharray": "3 4" }),
    el("path", { d: path(points), fill: "none", stroke: "var(--m0)", "stroke-width": 2.4 }),
    el("text", { x: x(.36), y: y(.86), "text-anchor": "middle" }, "ruled out"),
    el("text", { x: x(.5), y: S - 4, "text-anchor": "middle" }, "false alarms"));
}

const COLOURS = ["var(--m0)", "var(--m1)", "var(--m2)", "var(--m3)"];

export function curvePicture(curve, limits, classes) {
  const W = 250, H = 150, L = 40, R = 8, T = 24, B = 22;
  const g = curve.grid, x0 = Math.min(...g), x1 = Math.max(...g), [bottom, top] = limits;
  // Columns with a knee were read on a logarithmic scale, and are drawn on it.
  const read = (v) => (curve.knee ? Math.asinh(v / curve.knee) : v), wide = read(x1) - read(x0) || 1;
  const edge = curve.discrete ? 14 : 0, x = (v) => L + edge + (W - L - R - 2 * edge) * (read(v) - read(x0)) / wide;
  const y = (v) => T + (H - T - B) * (1 - (Math.min(Math.max(v, bottom), top) - bottom) / (top - bottom));
  const sets = Array.isArray(curve.effect[0]) ? curve.effect[0].map((_, k) => [curve.effect, curve.low, curve.high].map((part) => part.map((row) => row[k]))) : [[curve.effect, curve.low, curve.high]];
  return el("figure", { style: { margin: 0 } }, el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Effect of ${curve.name}: from ${short(Math.min(...sets[0][0]))} to ${short(Math.max(...sets[0][0]))}` },
    el("text", { class: "title", x: 2, y: 14 }, curve.name.length > 30 ? curve.name.slice(0, 29) + "…" : curve.name, el("title", {}, curve.name)),
    [bottom, 0, top].filter((v, i) => i !== 1 || (v > bottom && v < top)).map((v) => [el("line", { class: "axis", x1: L, x2: W - R, y1: y(v), y2: y(v) }), el("text", { x: L - 4, y: y(v) + 4, "text-anchor": "end", style: { fontSize: "10px" } }, short(v, 2))]),
    [x0, x1].map((v, i) => el("text", { x: x(v), y: H - 6, "text-anchor": curve.discrete ? "middle" : i ? "end" : "start", style: { fontSize: "10px" } }, short(v, 3))),
    curve.knee ? el("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle", style: { fontSize: "10px" } }, "log scale") : null,
    sets.map(([effect, low, high], k) => { const colour = COLOURS[k % 4];
      return curve.discrete
        ? g.map((v, i) => [el("line", { x1: x(v) + 5 * k, x2: x(v) + 5 * k, y1: y(low[i]), y2: y(high[i]), stroke: colour, "stroke-width": 6, opacity: .3 }), el("circle", { cx: x(v) + 5 * k, cy: y(effect[i]), r: 3.4, fill: colour })])
        : [el("path", { d: path([...g.map((v, i) => [x(v), y(high[i])]), ...g.map((v, i) => [x(v), y(low[i])]).reverse()]) + "Z", fill: colour, opacity: .18 }), el("path", { d: path(g.map((v, i) => [x(v), y(effect[i])])), fill: "none", stroke: colour, "stroke-width": 2 })]; })));
}

export function surfacePicture(surface, most) {
  const W = 250, H = 190, L = 40, R = 8, T = 24, B = 34, [a, b] = surface.grids;
  const w = (W - L - R) / b.length, h = (H - T - B) / a.length;
  return el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Joint effect of ${surface.name}` },
    el("text", { class: "title", x: 2, y: 14 }, surface.name.length > 32 ? surface.name.slice(0, 31) + "…" : surface.name, el("title", {}, surface.name)),
    a.map((_, i) => b.map((__, j) => { const v = surface.effect[i][j] / most;
      return el("rect", { x: L + j * w, y: H - B - (i + 1) * h, width: w + .3, height: h + .3, style: { fill: `rgba(var(${v > 0 ? "--hot" : "--cold"}), ${Math.min(1, Math.abs(v)).toFixed(3)})` } }); })),
    [[b[0], L, "start"], [b.at(-1), W - R, "end"]].map(([v, x, anchor]) => el("text", { x, y: H - B + 13, "text-anchor": anchor, style: { fontSize: "10px" } }, short(v))),
    [[a[0], H - B], [a.at(-1), T + 8]].map(([v, y]) => el("text", { x: L - 4, y, "text-anchor": "end", style: { fontSize: "10px" } }, short(v))),
    el("text", { x: (L + W - R) / 2, y: H - 5, "text-anchor": "middle", style: { fontSize: "10px" } }, `${surface.names[1]} (up: ${surface.names[0]})`));
}

// Signed bars beside names: [[name, value, shown]]
export function bars(rows) {
  const most = Math.max(1e-12, ...rows.map(([, v]) => Math.abs(v)));
  return el("table", { class: "bars" }, el("tbody", {}, rows.map(([name, v, shown]) => el("tr", {}, el("td", {}, name),
    el("td", {}, el("div", { class: "bar" }, el("i", { class: v < 0 ? "neg" : "", style: { left: (v < 0 ? 50 - 50 * Math.abs(v) / most : 50) + "%", width: 50 * Math.abs(v) / most + "%" } }))),
    el("td", { class: "num" }, shown)))));
}
