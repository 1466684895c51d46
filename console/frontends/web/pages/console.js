// The terminal page: the real console in xterm.js, over one WebSocket.

import { NO_SESSION, ask, element, key, offerRollback } from "/omni.js";

const F12 = "\x1b[24~";
const EVERY_MS = 2000;
const DRAWN_EVERY = 16384;
// The server takes no larger message, and ends the console of one that sends it.
const MAX_BYTES = 32768;

// xterm.js writes rules into <style> elements and style attributes, which this page's
// Content-Security-Policy refuses. The same rules as constructed sheets and properties are allowed.
function withoutInlineStyles() {
  const make = document.createElement.bind(document);
  document.createElement = (name, options) => {
    if (String(name).toLowerCase() !== "style") {
      return make(name, options);
    }
    const stand = make("omni-style");
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    const text = { get: () => "", set: (rules) => sheet.replaceSync(rules) };
    Object.defineProperty(stand, "textContent", text);
    Object.defineProperty(stand, "innerText", text);
    stand.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
      Element.prototype.remove.call(stand);
    };
    return stand;
  };
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") {
      this.style.cssText = value;
    } else {
      set.call(this, name, value);
    }
  };
}

function tell(text) {
  element("told").textContent = text;
}

function opened() {
  const terminal = new window.Terminal({
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    fontSize: window.innerWidth < 600 ? 11 : 14,
    scrollback: 0,
    convertEol: false,
    linkHandler: { activate: () => {} },
    theme: { background: "#101418" },
  });
  terminal.open(element("terminal"));
  return terminal;
}

// Columns and rows that fit, by the size of the cells that are drawn.
function fitted(terminal) {
  const screen = element("terminal").querySelector(".xterm-screen").getBoundingClientRect();
  const box = element("terminal").getBoundingClientRect();
  const columns = Math.floor(box.width / (screen.width / terminal.cols));
  const rows = Math.floor(box.height / (screen.height / terminal.rows));
  // before the first drawing a cell has no size
  return [Number.isFinite(columns) ? Math.max(20, columns) : 80, Number.isFinite(rows) ? Math.max(5, rows) : 24];
}

function connect(terminal) {
  const socket = new WebSocket(`ws://${location.host}/api/console`);
  const bytes = new TextEncoder();
  let drawn = 0;
  const send = (data) => {
    const open = socket.readyState === WebSocket.OPEN;
    if (open) {
      socket.send(data);
    }
    return open;
  };
  const say = (message) => send(JSON.stringify(message));
  const type = (text) => {
    const data = bytes.encode(text);
    let open = true;
    for (let at = 0; open && at < data.length; at += MAX_BYTES) {
      open = send(data.subarray(at, at + MAX_BYTES));
    }
    return open;
  };
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    // the first message has the key: a new size of the terminal is told as soon as it has one
    const size = fitted(terminal);
    say({ key: key(), size });
    say({ seen: !document.hidden });
    terminal.resize(...size);
    terminal.focus();
    tell("starting the console …");
  };
  socket.onmessage = (event) => {
    const data = new Uint8Array(event.data);
    tell("");
    terminal.write(data, () => {
      drawn += data.length;
      if (drawn >= DRAWN_EVERY) {
        say({ drawn });
        drawn = 0;
      }
    });
  };
  socket.onclose = (event) => {
    tell(event.reason || "the connection has ended; a run goes on without it");
    element("again").hidden = false;
    // a socket that is refused says nothing of why
    look();
  };
  return { say, type };
}

function start() {
  withoutInlineStyles();
  const terminal = opened();
  let line = connect(terminal);
  terminal.onData((text) => line.type(text));
  terminal.onBinary((text) => line.type(text));
  terminal.onResize(({ cols, rows }) => line.say({ size: [cols, rows] }));
  new ResizeObserver(() => terminal.resize(...fitted(terminal))).observe(element("terminal"));
  // Whoever does not see the page is away, and renews no lease.
  document.addEventListener("visibilitychange", () => line.say({ seen: !document.hidden }));
  // Browsers open their own tools with F12: here it is the console's key wherever the focus is.
  window.addEventListener("keydown", (event) => {
    if (event.key !== "F12") {
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    // without a console there is nobody to hear it: the button asks, and needs none
    const button = element("rollback-ask");
    if (!element("sure").open && !line.type(F12) && !button.hidden) {
      button.click();
    }
  }, true);
  element("again").addEventListener("click", () => {
    element("again").hidden = true;
    terminal.reset();
    line = connect(terminal);
  });
}

let seen = { run: null };
offerRollback(() => seen, tell);

// Why what is shown may be old; a terminal whose line is lost just stands still.
let trouble = "";

async function look() {
  const { status, answer } = await ask("/api/status");
  const before = trouble;
  trouble = "";
  if (status === 200) {
    seen = answer.seen;
    element("rollback-ask").hidden = !answer.write;
  } else if (status === 401) {
    trouble = NO_SESSION;
  } else {
    trouble = `${answer.error}; what is shown may be old`;
  }
  const told = element("told").textContent;
  if (trouble && told !== trouble) {
    tell(trouble);
  } else if (!trouble && before && told === before) {
    tell("");
  }
}

async function go() {
  if (!document.hidden) {
    await look();
  }
  setTimeout(go, EVERY_MS);
}

if (window.Terminal) {
  start();
} else {
  element("missing").hidden = false;
  element("terminal").hidden = true;
}
go();
