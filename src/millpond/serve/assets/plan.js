// The plan, as `millpond explain` prints it.

import { text } from "./api.js";
import { h, put } from "./dom.js";

export function plan() {
  const shown = h("pre", { class: "plan" }, "…");
  text("/api/plan?format=text")
    .then((found) => put(shown, found))
    .catch((error) => put(shown, error.message));
  return {
    element: h("section", { class: "card" }, h("div", { class: "bar-top" }, h("h2", {}, "Plan"), h("span", {}, h("a", { href: "/api/plan" }, "as JSON"), " · ", h("a", { href: "/metrics" }, "metrics"), " · ", h("a", { href: "/api" }, "API"))), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Plan" }, shown)),
  };
}
