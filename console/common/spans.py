"""Where a regular expression matches, found in this process.

`console.host.matching` runs this module by name, once for each pattern of an operator: it imports
little, because starting the process takes longer than the search.
"""

import re
from collections import deque
from collections.abc import Sequence

MAX_MEMORY = 1 << 30

Spans = list[tuple[int, int]]
"""Where a match is and where each of its groups, as `re.Match.span`."""


def here(
    pattern: str, texts: Sequence[str], *, lines: bool = False, whole: bool = False
) -> list[Spans | None]:
    """The last match in each text, None for none, without a limit; `lines`: `^` and `$` are those
    of a line; `whole`: a match is the whole text."""
    regex = re.compile(pattern, re.MULTILINE if lines else re.NOFLAG)
    matches: list[Spans | None] = []
    for text in texts:
        all_of_it = [regex.fullmatch(text)] if whole else []
        [last] = all_of_it or deque(regex.finditer(text), 1) or [None]
        matches.append(last and [last.span(group) for group in range(regex.groups + 1)])
    return matches


def main() -> None:
    import json
    import resource
    import sys

    request = json.load(sys.stdin)
    cpu_s = request.pop("cpu_s")
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(here(**request)))


if __name__ == "__main__":
    main()
