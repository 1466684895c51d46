"""What a command is, in one record: everything that prints, completes, documents or runs commands
reads it.

These are plain classes, as dataclasses and typing take longer to load than help takes to print.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOKS = "looks"
"""Only looks, and changes nothing."""
LOADS = "loads"
"""Changes nothing, but takes time or loads the machine."""
RESCUES = "rescues"
"""Ends what a trial started, and brings the baseline back."""
DECIDES = "decides"
"""Starts, stops or decides something."""

INTERNAL = "(internal)"
"""How the description of a command begins that no person types."""
SUPPRESS = "==SUPPRESS=="
"""The help of an argument of which none is printed, as argparse spells it."""


class Argument:
    """One argument: what `add_argument` of argparse takes. A `type` may be "path".

    Its metavar says what the Tab key offers for it (`PLACES` in the room `shell`).
    """

    __slots__ = ("names", "options")

    def __init__(self, *names: str, **options: "Any") -> None:
        self.names = names
        self.options = options

    @property
    def is_option(self) -> bool:
        return self.names[0].startswith("-")

    @property
    def is_shown(self) -> bool:
        return self.options.get("help") != SUPPRESS

    @property
    def help(self) -> str:
        return str(self.options.get("help") or "")

    @property
    def takes_value(self) -> bool:
        return self.options.get("action") not in ("store_true", "help", "version")

    @property
    def is_required(self) -> bool:
        if self.is_option:
            return bool(self.options.get("required"))
        return self.options.get("nargs") not in ("?", "*", "...")

    @property
    def field(self) -> str:
        """The attribute that a handler finds it in."""
        return str(self.options.get("dest", self.names[-1].lstrip("-").replace("-", "_")))

    @property
    def default(self) -> "Any":
        """What it is where it is not given; SUPPRESS where there is no such attribute then."""
        if self.options.get("action") == "store_true":
            return False
        if self.options.get("action") in ("help", "version"):
            return SUPPRESS
        default = self.options.get("default")
        empty = default is None and not self.is_option and self.options.get("nargs") in ("*", "...")
        return [] if empty or default == [] else default

    @property
    def value(self) -> str:
        """What its value is called in help; "" for a switch."""
        if not self.takes_value:
            return ""
        if "metavar" in self.options:
            return str(self.options["metavar"])
        choices = self.options.get("choices")
        if isinstance(choices, list | tuple):
            return f"{{{','.join(map(str, choices))}}}"
        return self.field.upper() if self.is_option else self.field


def place(name: str, metavar: str, words: str, **options: "Any") -> Argument:
    """An argument that is known by its place."""
    return Argument(name, metavar=metavar, help=words, **options)


def option(name: str, metavar: str, words: str, **options: "Any") -> Argument:
    """An option with a value; None where it is not given."""
    return Argument(name, metavar=metavar, help=words, **options)


def text(name: str, metavar: str, words: str, **options: "Any") -> Argument:
    """An option with a text; "" where it is not given."""
    return option(name, metavar, words, default="", **options)


def several(name: str, metavar: str, words: str, **options: "Any") -> Argument:
    """An option with a value that may be given more than once."""
    return option(name, metavar, words, action="append", default=[], **options)


def switch(name: str, words: str, **options: "Any") -> Argument:
    return Argument(name, action="store_true", help=words, **options)


class OneOf:
    """Options of which one at most may be given."""

    __slots__ = ("arguments",)

    def __init__(self, *arguments: Argument) -> None:
        self.arguments = arguments


class Command:
    """A command, or a part of one such as `check gguf`.

    `text` says what it does, `listed` the same where the commands are listed. `handler` is
    "module:function" below `console.frontends.cli`, "" where one of its `parts` has to be named.
    `follows`: it ends with the outcome of a run. `rest` takes the words behind `--`, whatever
    stands before it. No list, no help and no shell tells of a `hidden` one.
    """

    __slots__ = (
        "arguments", "danger", "epilog", "follows", "handler", "hidden", "listed", "name", "parts",
        "parts_are", "parts_title", "rest", "text", "values",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        text: str,
        handler: str = "",
        arguments: "tuple[Argument | OneOf, ...]" = (),
        *,
        danger: str = "",
        listed: str = "",
        epilog: str = "",
        parts: "tuple[Command, ...]" = (),
        parts_are: str = "PART",
        parts_title: str = "",
        rest: str = "",
        follows: bool = False,
        hidden: bool = False,
        values: "dict[str, Any] | None" = None,
    ) -> None:
        self.name = name
        self.text = text
        self.handler = handler
        self.arguments = arguments
        self.danger = danger
        self.listed = listed or text
        self.epilog = epilog
        self.parts = parts
        self.parts_are = parts_are
        self.parts_title = parts_title
        self.rest = rest
        self.follows = follows
        self.hidden = hidden
        self.values = values or {}

    @property
    def flat(self) -> tuple[Argument, ...]:
        """Its arguments, those of which one may be given side by side with the others."""
        return tuple(
            argument
            for entry in self.arguments
            for argument in (entry.arguments if isinstance(entry, OneOf) else (entry,))
        )
