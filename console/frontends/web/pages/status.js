// The status page: draws what the server says, and sends answers bound to what is drawn.

import { NO_SESSION, ask, element, made, offerRollback } from "/omni.js";

const EVERY_MS = 1000;
// A question that has just appeared takes no answer: the finger was meant for what was there before.
const READ_MS = 700;
const TOLD_MS = 8000;

let shown = { seen: { run: null } };
let question = "";
let askedAt = 0;
let forgets = 0;

function words(id, text) {
  const one = element(id);
  const said = text || "";
  if (one.textContent !== said) {
    one.textContent = said;
  }
  one.hidden = !said;
}

function share(id, value) {
  const one = element(id);
  one.hidden = value === null || value === undefined;
  one.value = value || 0;
}

// What came of a click; it makes room for newer facts after a while.
function tell(text) {
  words("told", text);
  clearTimeout(forgets);
  forgets = setTimeout(() => words("told", ""), TOLD_MS);
}

function drawRun(run) {
  element("run-box").hidden = !run;
  if (!run) {
    return;
  }
  words("run-word", run.word);
  words("run-mark", [run.mark, run.decision].filter(Boolean).join(" "));
  words("run-title", `${run.title} (${run.id})`);
  words("run-words", run.trouble || run.words);
  words("run-outage", run.baseline);
  words("run-progress", run.progress);
  share("run-share", run.share);
  element("step-box").hidden = !run.step;
  if (run.step) {
    words("step-name", run.step.name);
    words("step-title", run.step.title);
    words("step-state", run.step.state);
    words("step-progress", run.step.progress);
    words("step-said", run.step.said);
    share("step-share", run.step.share);
  }
}

function drawQuestion(facts) {
  const asked = facts.question;
  const appears = element("question-box").hidden;
  element("question-box").hidden = !asked;
  if (!asked) {
    return;
  }
  const now = JSON.stringify([facts.seen, asked]);
  if (appears || now !== question) {
    askedAt = performance.now();
  }
  // of a runner that was silent for a moment it is the same one, and what was typed is for it
  if (now === question) {
    return;
  }
  question = now;
  words("question-title", asked.until ? `${asked.title} (until ${asked.until})` : asked.title);
  element("question-lines").replaceChildren(...asked.lines.map((line) => made("p", line)));
  element("typed").value = "";
  element("typed-box").hidden = !facts.write;
  words("typed-name", asked.confirm ? `Type ${asked.confirm} to approve`
    : asked.reason ? "Reason (needed to override)" : "Reason (optional)");
  element("approve").hidden = !facts.write;
  element("reject").hidden = !facts.write || !asked.reject;
}

function drawRollback(rollback) {
  element("rollback-box").hidden = !rollback;
  if (rollback) {
    words("rollback-words", rollback.words);
    words("rollback-trouble", rollback.trouble);
    words("rollback-progress", rollback.progress);
    words("rollback-stages", rollback.stages.join("\n"));
  }
}

function draw(facts) {
  shown = facts;
  words("baseline-word", facts.baseline.word.toUpperCase());
  words("baseline-words", facts.baseline.words);
  drawRun(facts.run);
  drawQuestion(facts);
  words("next", facts.next);
  drawRollback(facts.rollback);
  element("gauges").replaceChildren(...facts.gauges.flatMap(
    (one) => [made("dt", one.name), made("dd", one.words)]));
  words("guard", facts.guard);
  words("lease", facts.lease);
  element("log-box").hidden = !facts.log;
  if (facts.log) {
    words("log-name", facts.log.name);
    words("log", facts.log.lines.join("\n"));
  }
  words("at", facts.at);
  words("rights", facts.write ? "" : ", read-only");
  element("emergency").hidden = !facts.write;
  document.title = facts.run ? `${facts.run.word}: omni-console` : "omni-console";
}

async function look() {
  const { status, answer } = await ask("/api/status");
  if (status === 200) {
    words("trouble", "");
    draw(answer);
  } else if (status === 401) {
    words("trouble", NO_SESSION);
  } else {
    words("trouble", `${answer.error}; what is shown may be old`);
  }
}

async function answerWith(verb) {
  if (performance.now() - askedAt < READ_MS) {
    tell("the question has just appeared: read it, then answer");
    return;
  }
  const typed = element("typed").value.trim();
  const confirms = shown.question && shown.question.confirm && verb === "approve";
  const message = { verb, ...shown.seen, [confirms ? "confirm" : "why"]: typed };
  const buttons = [element("approve"), element("reject")];
  // a second tap is no second answer, and would be refused as one that comes too late
  buttons.forEach((one) => { one.disabled = true; });
  try {
    const { answer } = await ask("/api/verb", message);
    tell(answer.error ? `${verb}: ${answer.error}` : `${verb}: taken`);
    await look();
  } finally {
    buttons.forEach((one) => { one.disabled = false; });
  }
}

async function go() {
  if (!document.hidden) {
    await look();
  }
  setTimeout(go, EVERY_MS);
}

element("approve").addEventListener("click", () => answerWith("approve"));
element("reject").addEventListener("click", () => answerWith("reject"));
element("leave").addEventListener("click", async () => {
  await ask("/api/leave", {});
  location.replace("/enter");
});
document.addEventListener("visibilitychange", () => document.hidden || look());
offerRollback(() => shown.seen, tell);
go();
