"""What is different in a server, against the fingerprint of another one, as facts with words.

A fact is different if the first server always gave the same and the second one never gives that.
What the first server itself gave once so and once so is noise, and is counted apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from console.bench.contract.answer import OFFERED, Answer, Token
from console.bench.contract.fingerprint import CaseAnswers, Fingerprint
from console.common.text import clean
from console.common.units import plural
from console.runtime.answers.sanity import MIN_TOKENS, Kind, judge, quoted

MAX_NAMED = 3
SHOWN = 60
"""Characters of a value in a table."""
STATE, FORM, CONTENT = "state", "form", "content"
NOUNS = {
    "tools": ("tools", "tool"), "schema": ("schemas", "schema"),
    "protocol": ("protocol", "protocol"),
}  # fmt: skip
"""What several and one of a group are called, in the order of the words."""
NO_TEXT = {Kind.EMPTY, Kind.BLANK}


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that is different. `part`: whether it is offered at all, its form, or its words."""

    case: str
    group: str
    part: str
    fact: str
    before: str
    after: str


@dataclass(frozen=True)
class Comparison:
    """Two servers by their answers to the same cases. `counts`: how many of each group both were
    asked; `worded`: in how many cases words can be compared; `noisy`, `own_noise`: cases in which
    the first, and in which only the second differs from itself; `apart`: cases that only one was
    asked."""

    changes: tuple[Change, ...]
    counts: dict[str, int]
    worded: int
    noisy: tuple[str, ...] = ()
    own_noise: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()
    """Groups of which the second server gives nothing any more."""
    called: bool = True
    """Whether a tool was called by either of them."""
    blank: tuple[str, ...] = ()
    """Cases to which only the second server answers with white space or nothing."""
    garbled: tuple[str, ...] = ()
    """Cases to which only the second server answers with other garbage."""
    untold: Mapping[str, str] = field(default_factory=dict)
    """Cases of which it is not known what one of them answers, and why: no same, no change."""
    untold_groups: frozenset[str] = frozenset()

    @property
    def same(self) -> bool:
        return not self.changes and not self.untold

    @property
    def compared(self) -> int:
        return sum(self.counts.values())

    def cases(self, group: str = "", part: str = "") -> list[str]:
        """The cases that changed; of a group, or in a part, where one is named. Words that are
        different are no change of form."""
        names = (
            change.case for change in self.changes
            if group in ("", change.group) and (part == change.part or not part)
        )  # fmt: skip
        return list(dict.fromkeys(names))

    def formed(self, group: str) -> list[str]:
        """The cases of a group in which more than words changed."""
        names = (
            change.case
            for change in self.changes
            if change.group == group and change.part != CONTENT
        )
        return list(dict.fromkeys(names))

    @property
    def differing(self) -> list[str]:
        """The cases whose words are different, though both servers answered."""
        return self.cases(part=CONTENT)

    def metrics(self) -> dict[str, tuple[float | None, int]]:
        """Each figure that a gate can ask for, and how many cases it is of; None where a case of it
        is not known."""
        whole = not self.untold
        share = len(self.differing) / self.worded if self.worded and whole else None
        return {
            "changed": (len(self.cases()) if self.compared and whole else None, self.compared),
            "answers_differ": (share, self.worded),
            **{
                f"{group}_changed": (
                    len(self.formed(group)) if self._known(group) else None,
                    self.counts.get(group, 0),
                )
                for group in ("tools", "schema", "protocol")
            },
        }

    def _known(self, group: str) -> bool:
        return bool(self.counts.get(group)) and group not in self.untold_groups

    def words(self) -> str:
        """`same tools; schema case enum changed; 2 of 40 answers differ`"""
        if not (self.compared or self.untold):
            return "nothing to compare: no case was asked of both"
        parts = [*self._spoilt(), *untold_words(self.untold), *self._findings()]
        if self.apart:
            parts.append(f"{plural(len(self.apart), 'case')} asked of one only")
        return "; ".join(parts)

    def _spoilt(self) -> Iterator[str]:
        """The worst first: `every answer blank`, `3 of 40 answers garbled`."""
        for names, word in ((self.blank, "blank"), (self.garbled, "garbled")):
            if names:
                every = len(names) == self.worded
                share = f"{len(names)} of {plural(self.worded, 'answer')}"
                yield f"{'every answer' if every else share} {word}"

    def _findings(self) -> Iterator[str]:
        for group in NOUNS:
            if self.counts.get(group):
                yield self._group(group)
        noise = len(self.noisy)
        own = f" (the baseline differs from itself in {noise})" if noise else ""
        if count := len(self.differing):
            verb = "differs" if count == 1 else "differ"
            yield f"{count} of {plural(self.worded, 'answer')} {verb}{own}"
        elif silent := self.formed("answers"):
            yield f"{plural(len(silent), 'answer')} missing{own}"
        elif self.worded and "answers" not in self.untold_groups:
            yield f"same answers{own}"
        if self.own_noise:
            yield f"differs from itself in {plural(len(self.own_noise), 'case')}"

    def _group(self, group: str) -> str:
        several, singular = NOUNS[group]
        changed = self.formed(group)
        if not changed and group in self.untold_groups:
            return f"{several} not known"
        if not changed:
            unseen = group == "tools" and not self.called
            return f"same {several}" + (", of which none was called" if unseen else "")
        if group in self.dropped:
            return f"{several} dropped"
        if group == "protocol":
            return f"{self._facts(group)} changed"
        if len(changed) == 1:
            return f"{singular} case {changed[0]} changed"
        named = _some(changed)
        return f"{len(changed)} of {self.counts[group]} {singular} cases changed ({named})"

    def _facts(self, group: str) -> str:
        """What changed of each case, by its first fact: `chat template of props, too-long`."""
        first: dict[str, str] = {}
        for change in self.changes:
            if change.group == group and change.part != CONTENT:
                words = change.case if change.part == STATE else f"{change.fact} of {change.case}"
                first.setdefault(change.case, words)
        return _some([*first.values()])

    def to_json(self) -> dict[str, Any]:
        return {
            "same": self.same, "words": self.words(), "compared": self.compared,
            "changes": [asdict(change) for change in self.changes],
            "noisy": list(self.noisy), "own_noise": list(self.own_noise),
            "apart": list(self.apart), "untold": dict(self.untold),
            "metrics": {name: value for name, (value, _) in self.metrics().items()},
        }  # fmt: skip


def untold_words(untold: Mapping[str, str]) -> Iterator[str]:
    """`47 cases not known (it wants a key: HTTP 401 Invalid API Key)`, for each reason."""
    for why, count in Counter(untold.values()).items():
        yield f"{plural(count, 'case')} not known ({clean(why, 160)})"


def compare(before: Fingerprint, after: Fingerprint) -> Comparison:
    """What is different in `after`; cases that do not ask the same are not compared."""
    shared = [
        name for name, case in after.cases.items()
        if name in before.cases and before.cases[name].digest == case.digest
    ]  # fmt: skip
    untold = {
        name: why
        for name in shared
        if (why := after.cases[name].untold or before.cases[name].untold)
    }
    both = [name for name in shared if name not in untold]
    changes: list[Change] = []
    noisy, own, group_counts, worded = [], [], dict[str, int](), 0
    blank, garbled = list[str](), list[str]()
    for name in both:
        first, second = before.cases[name], after.cases[name]
        group_counts[second.group] = group_counts.get(second.group, 0) + 1
        changes += _changes(name, first, second)
        worded += bool(first.names(CONTENT) and second.names(CONTENT))
        if not _garbage(first) and (kinds := _garbage(second)):
            (blank if kinds <= NO_TEXT else garbled).append(name)
        if name in before.unsteady:
            noisy.append(name)
        elif name in after.unsteady:
            own.append(name)
    apart = [name for name in {**before.cases, **after.cases} if name not in shared]
    pairs = [(before.cases[name], after.cases[name]) for name in both]
    dropped = {
        group for group in group_counts
        if _dropped(*map(list, zip(*(p for p in pairs if p[1].group == group), strict=True)))
    }  # fmt: skip
    changes.sort(key=lambda change: change.part == CONTENT)
    called = any(_called(case) for pair in pairs for case in pair)
    return Comparison(
        tuple(changes),
        group_counts,
        worded,
        tuple(noisy),
        tuple(own),
        tuple(apart),
        frozenset(dropped),
        called,
        tuple(blank),
        tuple(garbled),
        untold,
        frozenset(after.cases[name].group for name in untold),
    )


def _garbage(case: CaseAnswers) -> set[Kind]:
    """How a case was answered with garbage, if it was every time. A loop may be a sane model's."""
    texts = [text for text in case.values(CONTENT, "text") if isinstance(text, str)]
    verdicts = [judge(text, tokens=MIN_TOKENS) for text in texts]
    kinds = {verdict.kind for verdict in verdicts if verdict is not None}
    return kinds if all(verdicts) and Kind.LOOP not in kinds else set()


def _dropped(before: list[CaseAnswers], after: list[CaseAnswers]) -> bool:
    """Whether the first server offered something of a group, or called a tool of it, and the second
    never does."""
    return any(any(map(gave, before)) and not any(map(gave, after)) for gave in (_offered, _called))


def _offered(case: CaseAnswers) -> bool:
    return OFFERED in case.states


def _called(case: CaseAnswers) -> bool:
    return any(case.values(FORM, "calls"))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _changes(name: str, first: CaseAnswers, second: CaseAnswers) -> Iterator[Change]:
    if _differ(first.states, second.states):
        yield Change(name, second.group, STATE, "offered", _state(first), _state(second))
    if OFFERED not in first.states or OFFERED not in second.states:
        return
    for part in (FORM, CONTENT):
        for fact in dict.fromkeys((*first.names(part), *second.names(part))):
            left, right = first.values(part, fact), second.values(part, fact)
            if not _differ(left, right):
                continue
            if part == FORM:
                yield Change(name, second.group, part, fact, _shown(left[0]), _shown(right[0]))
                continue
            words = _texts(first, second, left[0], right[0])
            yield Change(name, second.group, part, fact, *words)
            break  # the text ended otherwise, too: that is no news beside it


def _differ(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether the first gave always the same, and the second never gives that."""
    return all(value == left[0] for value in left) and left[0] not in right


def _state(case: CaseAnswers) -> str:
    why = next((answer.why for answer in case.answers if answer.why), "")
    return clean(f"{case.states[0]} ({why})" if why else case.states[0], 160)


def _texts(first: CaseAnswers, second: CaseAnswers, left: Any, right: Any) -> tuple[str, str]:
    """Where two texts part: the first token that differs with its probability, where servers give
    them, else the words from there on."""
    parting = _parting(first.answers[0], second.answers[0])
    if parting is not None:
        at, token, other = parting
        return f"token {at + 1}: {_token(token)}", _token(other)
    if not (isinstance(left, str) and isinstance(right, str)):
        return _shown(left), _shown(right)
    same = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
                min(len(left), len(right)))  # fmt: skip
    start = max(0, same - 12)
    lead = "…" if start else ""
    return f"{lead}{_shown(left[start:])}", f"{lead}{_shown(right[start:])}"


def _parting(answer: Answer, other: Answer) -> tuple[int, Token | None, Token | None] | None:
    """The first token at which two answers part; None where they do not, or are not known."""
    if not answer.tokens or not other.tokens:
        return None
    for at in range(max(len(answer.tokens), len(other.tokens))):
        left = answer.tokens[at] if at < len(answer.tokens) else None
        right = other.tokens[at] if at < len(other.tokens) else None
        if left is None or right is None or left[0] != right[0]:
            return at, left, right
    return None


def _token(token: Token | None) -> str:
    if token is None:
        return "the end"
    return f"{clean(json.dumps(token[0], ensure_ascii=False), 40)} (p {token[1]:.2g})"


def _shown(value: Any) -> str:
    """A value of a fact, short and clean."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return clean(", ".join(map(str, value)), SHOWN) or "none"
    if isinstance(value, str):
        seen = value.strip() and value.isprintable()
        return clean(value, SHOWN) if seen else quoted(value, SHOWN) if value else "nothing"
    return clean(json.dumps(value, ensure_ascii=False), SHOWN)
