// The four steps share one state: what is planned, of which table, with which budget.
import { call } from "./api.js";

export const state = {
  rows: 5000, columns: 10, classes: null, epsilon: 1, delta: 1e-6, neighbouring: "replace-one", model: "additive", rowsPerPerson: 1, loss: .01,
  table: null, // {file, rows, columns, kinds, target, task, classes, readings}
  tables: [], models: [], ledgers: [], epsilons: [], running: null,
};

export async function refresh() {
  Object.assign(state, await call("start"));
  document.getElementById("folder").textContent = state.folder;
}

let opener = () => {};
export const onShow = (work) => { opener = work; };
export const show = (name, argument) => opener(name, argument);
