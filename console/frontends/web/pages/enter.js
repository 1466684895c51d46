// Exchange the link's token for a session; the address forgets it first.

import { ask, element, keep } from "/omni.js";

async function enter() {
  const token = location.hash.slice(1);
  history.replaceState(null, "", "/enter");
  if (!token) {
    return;
  }
  element("words").textContent = "Opening …";
  const { status, answer } = await ask("/api/enter", { token });
  if (status === 200) {
    keep(answer.key);
    location.replace("/");
  } else {
    element("words").textContent = `${answer.error}. Press Enter where omni-console web runs: it prints a new link.`;
  }
}

// A link that is opened where this page is already loads no page.
window.addEventListener("hashchange", enter);
enter();
