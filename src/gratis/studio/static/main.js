// Which of the four steps is shown.
import { alertUser, el } from "./api.js";
import { dataView } from "./data.js";
import { lookView } from "./look.js";
import { planView } from "./plan.js";
import { spendView } from "./spend.js";
import { onShow, refresh, show, state } from "./state.js";

const views = { plan: planView, data: dataView, spend: spendView, look: lookView };
const made = {};

onShow((name, argument) => {
  alertUser(null);
  for (const key of Object.keys(views)) {
    document.getElementById(key).hidden = key !== name;
    document.querySelector(`nav [data-view=${key}]`).toggleAttribute("aria-current", false);
  }
  document.querySelector(`nav [data-view=${name}]`).setAttribute("aria-current", "page");
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · Gratis studio`;
  sessionStorage.setItem("gratis-view", name);
  made[name] ||= views[name](document.getElementById(name));
  scrollTo(0, 0);
  made[name].shown?.(argument);
});

for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => show(button.dataset.view));

try {
  await refresh();
  const last = sessionStorage.getItem("gratis-view");
  show(state.running ? "spend" : views[last] ? last : "plan");
  document.documentElement.dataset.ready = "yes";
} catch (error) {
  alertUser(error);
  document.getElementById("content").append(el("p", { class: "card" }, "Open the address that “gratis studio” printed in the terminal: it holds the key for this page."));
}
