"""`lessons`: searches and reads past lessons, rechecks them, or drafts one from a run."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from dataclasses import asdict
from datetime import date
from typing import Any

from console.common import redact
from console.common.clock import SystemClock
from console.common.errors import Exit, UsageError
from console.common.text import UNLIMITED, clean, columns, one_line
from console.config.lessons import registry as lesson_files
from console.config.lessons.registry import Lesson, Registry, due_by, load_lesson, load_registry
from console.config.lessons.use import (
    Answer,
    Rechecked,
    drafted,
    recheck,
    search,
    write,
)
from console.render.brief import page
from console.render.lessons import due_words, entry, row

WIDEST = 110


def lessons(args: Namespace) -> int:
    """List, search, show one whole entry, list what is due, or draft.

    Exit 0; 4 if the query finds nothing, or a recheck contradicts the lesson; 2 for an unknown id,
    or if a lesson of the operator's own cannot be read.
    """
    _check(args)
    if args.draft is not None:
        return _draft(args)
    registry = load_registry()
    today = date.fromtimestamp(SystemClock().now())
    if args.export is not None:
        code = _export(registry, args)
    elif args.brief and not args.json:
        code = _brief(registry, " ".join(args.query))
    elif args.due:
        code = _due(registry, today, run=args.run, as_json=args.json)
    else:
        code = _answer_query(registry, " ".join(args.query), today, as_json=args.json)
    for problem in registry.problems:
        sys.stderr.write(f"omni-console: {clean(str(problem), 1000)}\n")
    return int(Exit.USAGE) if registry.problems else code


def _check(args: Namespace) -> None:
    if args.run and not args.due:
        raise UsageError("--run needs --due", hint="omni-console lessons --due --run")
    if args.draft is not None and (args.due or args.query):
        raise UsageError("--draft takes no other option", hint="omni-console lessons --draft RUN")
    if args.as_ and args.draft is None:
        raise UsageError("--as needs --draft", hint="omni-console lessons --draft RUN --as S")
    if args.due and args.query:
        raise UsageError("--due takes no query", hint="omni-console lessons --due")
    if args.export is not None and (args.query or args.brief or args.due or args.draft is not None):
        raise UsageError(
            "--export takes no other option than --force",
            hint="omni-console lessons --export AGENTS.md",
        )
    if args.force and args.export is None:
        raise UsageError(
            "--force needs --export", hint="omni-console lessons --export AGENTS.md --force"
        )
    if args.brief and (args.due or args.draft is not None):
        raise UsageError("--brief takes only a query", hint="omni-console lessons --brief docker")


def _answer_query(registry: Registry, query: str, today: date, *, as_json: bool) -> int:
    exact_match = _meant(registry, query)
    if exact_match is not None:
        return _show_lesson(registry, exact_match, today, as_json=as_json)
    matches = search(registry.lessons, query)
    if as_json:
        rows = [_plain(lesson, today) for lesson in matches]
        problems = [str(problem) for problem in registry.problems]
        print(redact.dumped({"query": query, "lessons": rows, "problems": problems}))
    elif not matches:
        _nothing(query)
    else:
        print("\n".join(row(lesson) for lesson in matches))
        print(f"\n{_count(registry, matches, today)}")
    return int(Exit.OK if matches else Exit.HOLD)


def _brief(registry: Registry, query: str) -> int:
    """The one page. It fits the terminal; what reads it through a pipe gets whole lines."""
    matches = search(registry.lessons, query)
    if not matches:
        return _nothing(query)
    width = columns(sys.stdout)
    print("\n".join(page(sorted(matches, key=lambda lesson: lesson_files.order(lesson.id)), width)))
    print("\nomni-console lessons ID shows a whole lesson")
    return int(Exit.OK)


def _export(registry: Registry, args: Namespace) -> int:
    from console.frontends.cli.guide import export

    path = export(registry.lessons, args.export, force=args.force)
    if path is None:
        return int(Exit.OK)
    if args.json:
        print(redact.dumped({"file": str(path), "lessons": len(registry.lessons)}))
    else:
        print(f"{len(registry.lessons)} lessons written to {clean(str(path))}")
    return int(Exit.OK)


def _nothing(query: str) -> int:
    print(f"no lesson has all of: {one_line(query)}")
    print("  hint: fewer words; omni-console lessons alone lists them all")
    return int(Exit.HOLD)


def _meant(registry: Registry, query: str) -> Lesson | None:
    """The lesson with the typed id, in whatever form. Raises UsageError for an unknown one,
    InvalidFile if its file is unusable."""
    lesson_id = lesson_files.typed(query)
    if not lesson_id:
        return None
    lesson = registry.get(lesson_id)
    if lesson is None:
        if lesson_id in lesson_files.known():
            return load_lesson(lesson_files.files()[lesson_id])  # says what is wrong with it
        near = lesson_files.near(lesson_id, (other.id for other in registry.lessons))
        hint = f"omni-console lessons {near}" if near else "omni-console lessons lists them"
        raise UsageError(f"there is no lesson {lesson_id}", hint=hint)
    return lesson


def _show_lesson(registry: Registry, lesson: Lesson, today: date, *, as_json: bool) -> int:
    if as_json:
        others = [
            {"told_in": other.id, "words": contradiction.words}
            for other, contradiction in registry.contradicting(lesson.id)
        ]
        data = {
            **_plain(lesson, today), "linked_from": registry.linking_to(lesson.id),
            "contradicted_by": others,
        }  # fmt: skip
        print(redact.dumped({"lesson": data}))
    else:
        width = columns(sys.stdout)
        width = width if width == UNLIMITED else min(WIDEST, width)
        print("\n".join(text for text, _ in entry(registry, lesson, width, today)))
    return int(Exit.OK)


def _count(registry: Registry, matches: list[Lesson], today: date) -> str:
    due = sum(due_by(lesson, today) for lesson in registry.lessons)
    own = sum(lesson.own for lesson in registry.lessons)
    words = f"{len(matches)} of {len(registry.lessons)} lessons"
    words += f", {own} of them yours" if own else ""
    words += f"; {due} due for review: omni-console lessons --due" if due else ""
    return f"{words}; omni-console lessons {matches[0].id} shows a whole lesson"


def _plain(lesson: Lesson, today: date) -> dict[str, Any]:
    data = lesson.model.model_dump(by_alias=True, mode="json")
    data.pop("schema")
    return {**data, "own": lesson.own, "file": str(lesson.path), "is_due": due_by(lesson, today)}


def _due(registry: Registry, today: date, *, run: bool, as_json: bool) -> int:
    due_lessons = sorted(
        (lesson for lesson in registry.lessons if due_by(lesson, today)),
        key=lambda lesson: (lesson.model.due or "", lesson_files.order(lesson.id)),
    )
    answers: list[Rechecked] = []
    for lesson in due_lessons:
        if not as_json:
            print(f"{row(lesson)}\n        {due_words(lesson, today)}", flush=True)
        check = lesson.model.recheck
        answer = recheck(lesson, check) if run and check is not None else None
        if answer is not None:
            answers.append(answer)
        if not as_json:
            print("\n".join(f"        {line}" for line in _answer_lines(lesson, answer)))
    if as_json:
        rows = [_plain(lesson, today) for lesson in due_lessons]
        print(redact.dumped({"due": rows, "rechecks": [asdict(outcome) for outcome in answers]}))
    else:
        print(_sum(due_lessons, answers, today))
    news = any(outcome.answer is not Answer.PASSED for outcome in answers)
    return int(Exit.HOLD if news else Exit.OK)


def _answer_lines(lesson: Lesson, answer: Rechecked | None) -> list[str]:
    """What a person has to check, the command, or its result."""
    model = lesson.model
    out = [f"look: {clean(model.review)}"] if model.review else []
    if model.recheck is not None:
        out.append(f"$ {clean(shlex.join(model.recheck.output))}")
        out.append(f"{clean(model.recheck.words)}")
    if answer is not None:
        out.append(f"{answer.answer.upper()} {answer.words} ({answer.took_s:.1f} s)")
        out += [f"| {line}" for line in answer.lines]
    return out


def _sum(due_lessons: list[Lesson], answers: list[Rechecked], today: date) -> str:
    if not due_lessons:
        return f"nothing is due on {today.isoformat()}"
    if not answers:
        commands = sum(lesson.model.recheck is not None for lesson in due_lessons)
        return (
            f"\n{len(due_lessons)} due; {commands} have a command: omni-console lessons --due --run"
        )
    counts = ", ".join(f"{sum(a.answer is k for a in answers)} {k}" for k in Answer)
    words = f"\nrechecked {len(answers)} of {len(due_lessons)}: {counts}. No status was changed."
    rest = len(due_lessons) - len(answers)
    return f"{words} A person has to look at the other {rest}." if rest else words


def _draft(args: Namespace) -> int:
    """Write the draft and print its path. Raises UsageError if this run has one already."""
    from console.journal.run_dir import find_run
    from console.render.report.lessons import found_in

    run = find_run(args.draft or None)
    before = [lesson for lesson in load_registry().lessons if run.id in lesson.model.runs]
    if before:
        raise UsageError(
            f"{before[0].id} was drafted from run {run.id}", str(before[0].path), "go on there"
        )
    record = found_in(run)
    letter = args.as_ or ("S" if record.worked else "F")
    lesson_id = lesson_files.next_free(letter, lesson_files.known())
    path = write(lesson_id, drafted(lesson_id, record))
    if args.json:
        print(redact.dumped({"id": lesson_id, "file": str(path), "run": run.id}))
    else:
        print(f"{lesson_id} drafted from run {run.id}")
        print(f"  {clean(str(path))}")
        print("  hint: write cause, resolution and lesson there, then set its status")
    return int(Exit.OK)
