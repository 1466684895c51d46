// What every page needs: its key, requests with it, and the button that rolls back.

const KEY = "omni-console-key";

export const NO_SESSION = "No session: press Enter where omni-console web runs, and open the link that it prints.";

const UNSURE = "no answer came, but it may have been done: look at the state shown here";

export const element = (id) => document.getElementById(id);

export function keep(key) {
  localStorage.setItem(KEY, key);
}

export function key() {
  return localStorage.getItem(KEY) || "";
}

// Ask the server; {status, answer}, with status 0 where it does not answer.
export async function ask(path, message) {
  const options = { headers: { "x-omni-key": key() }, signal: AbortSignal.timeout(15000) };
  if (message !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(message);
    options.headers["content-type"] = "application/json";
  }
  try {
    const got = await fetch(path, options);
    return { status: got.status, answer: await got.json() };
  } catch {
    const asked = message === undefined;
    return { status: 0, answer: { error: asked ? "the server does not answer" : UNSURE } };
  }
}

// Make an element with text; text of others is never markup.
export function made(name, text, kind) {
  const one = document.createElement(name);
  one.textContent = text;
  if (kind) {
    one.className = kind;
  }
  return one;
}

// Ask before a rollback; `seen` gives what the page shows at that moment.
export function offerRollback(seen, tell) {
  const dialog = element("sure");
  let shown = null;
  element("rollback-ask").addEventListener("click", () => {
    shown = seen();
    element("sure-run").textContent = shown.run
      ? `Run ${shown.run} is ended, and the baseline is brought back.`
      : "No run is on show. The baseline is brought back if it is down.";
    dialog.showModal();
  });
  element("sure-no").addEventListener("click", () => dialog.close());
  element("sure-yes").addEventListener("click", async () => {
    dialog.close();
    const { answer } = await ask("/api/verb", { verb: "rollback", run: shown.run });
    tell(answer.error || "rolling back");
  });
}
