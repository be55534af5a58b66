"""Regular expressions that match in linear time: those of RE2, as Kafka takes them from clients (it uses RE2/J).

A pattern becomes a nondeterministic automaton, and matching follows all its paths at once, so there is no backtracking.
The sets of paths that were met are kept, as in RE2. A pattern may have 5,000 instructions; Unicode scripts
(``\\p{Greek}``) are not known, general categories (``\\p{Lu}``) are. Only whole texts are matched, so groups do not
capture, and greed makes no difference.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from milena.protocol.cooperative import Cooperative, YieldBudget, run_now

MAX_REPEAT: Final = 1_000
"""The maximum number of repetitions in braces, as in RE2."""
MAX_LENGTH: Final = 10_000
"""The maximum length of a pattern. With the limit of instructions, a pattern is read within 50 ms."""
MAX_INSTRUCTIONS: Final = 5_000
MAX_DEPTH: Final = 100
"""The maximum depth of groups."""
MAX_KEPT: Final = 200_000
"""Instructions in the sets of paths that are kept."""
LAST: Final = "\U0010ffff"
WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
PERL: Final = {"d": (("0", "9"),), "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")), "w": WORD}
POSIX: Final = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (("0", "9"),),
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": WORD,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
CATEGORIES: Final = {
    "C": "cfos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
"""The general categories of Unicode: the second letters of each first one."""
ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class InvalidPattern(ValueError):
    """The text is not a regular expression, or too large."""


class Place(Enum):
    """What must be true between two characters."""

    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()


@dataclass(frozen=True, slots=True)
class Characters:
    """A set of characters: ranges and Unicode categories (with whether they are excluded)."""

    ranges: tuple[tuple[str, str], ...] = ()
    sets: tuple[Characters, ...] = ()
    category: str = ""
    negated: bool = False
    folds: bool = False
    """Whether case is ignored."""

    def has(self, char: str) -> bool:
        if self.folds:
            return any(map(self._contains, {char, *_cases(char)})) is not self.negated
        return self._contains(char) is not self.negated

    def _contains(self, char: str) -> bool:
        if self.category and unicodedata.category(char).startswith(self.category):
            return True
        return any(low <= char <= high for low, high in self.ranges) or any(one.has(char) for one in self.sets)


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | Place | Sequence | Choice | Repeat


@dataclass(frozen=True, slots=True)
class Flags:
    folds: bool = False
    multiline: bool = False
    dot_is_all: bool = False


class Parser:
    """Parses a pattern in RE2's syntax, with the flags of Perl. Its methods raise InvalidPattern."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidPattern("the expression is too large")
        self._text = text
        self._at = 0
        self._flags = Flags()

    def parse(self) -> Node:
        node = self._choice(0)
        if self._at < len(self._text):
            raise InvalidPattern("unexpected ): a group ends that has not begun")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise InvalidPattern("the expression ends too early")
        self._at += 1
        return char

    def _skip(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise InvalidPattern(f"missing {end}")
        taken = self._text[self._at : found]
        self._at = found + len(end)
        return taken

    def _choice(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise InvalidPattern("groups are nested too deeply")
        branches = [self._sequence(depth)]
        while self._skip("|"):
            branches.append(self._sequence(depth))
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._skip("\\Q"):
                quoted = self._quoted()
                parts += [self._literal(char) for char in quoted]
                if not quoted:
                    continue
            else:
                part = self._atom(depth)
                if part is not None:
                    parts.append(part)
                elif not parts:
                    continue
            parts[-1] = self._repeated(parts[-1])
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self) -> str:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at : end if end >= 0 else None]
        self._at = end + 2 if end >= 0 else len(self._text)
        return quoted

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._skip("?")
        if self._bounds() is not None:
            raise InvalidPattern("a repetition of a repetition")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Take a repetition operator; None if there is none."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return bounds
        if self._peek() != "{":
            return None
        inner, brace, _ = self._text[self._at + 1 : self._at + 2 + len("1000,1000")].partition("}")
        low, comma, high = inner.partition(",")
        if not brace or not _is_number(low) or not (_is_number(high) or not high):
            return None  # a literal brace
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise InvalidPattern(f"invalid number of repetitions {{{inner}}}")
        self._at += len(inner) + 2
        return least, most

    def _atom(self, depth: int) -> Node | None:
        """Take one part of a sequence; None for flags, which match nothing."""
        char = self._take()
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case ".":
                everything = () if self._flags.dot_is_all else (("\n", "\n"),)
                return Characters(everything, negated=True)
            case "^":
                return Place.LINE_START if self._flags.multiline else Place.TEXT_START
            case "$":
                return Place.LINE_END if self._flags.multiline else Place.TEXT_END
            case "*" | "+" | "?":
                raise InvalidPattern(f"{char} repeats nothing")
            case "{":
                self._at -= 1
                if self._bounds() is not None:
                    raise InvalidPattern("{ repeats nothing")
                self._at += 1
                return self._literal("{")
            case "\\":
                return self._escaped()
        return self._literal(char)

    def _literal(self, char: str) -> Characters:
        return Characters(((char, char),), folds=self._flags.folds)

    def _group(self, depth: int) -> Node | None:
        before = self._flags
        if self._skip("?P<") or self._skip("?<"):
            name = self._until(">")
            if not name or not all(_is_word(char) for char in name):
                raise InvalidPattern(f"invalid name of a group {name!r}")
        elif self._skip("?") and not self._group_flags():
            return None
        node = self._choice(depth + 1)
        if not self._skip(")"):
            raise InvalidPattern("missing )")
        self._flags = before
        return node

    def _group_flags(self) -> bool:
        """Take the flags of a group. Returns whether the group continues after them; else they are for what
        follows."""
        value, seen = True, False
        found = {"folds": self._flags.folds, "multiline": self._flags.multiline, "dot_is_all": self._flags.dot_is_all}
        names = {"i": "folds", "m": "multiline", "s": "dot_is_all"}
        while True:
            char = self._take()
            if char in names:
                found[names[char]] = value
                seen = True
            elif char == "U":
                seen = True  # swaps greed
            elif char == "-" and value:
                value, seen = False, False
            elif char in ":)" and (seen or value):
                self._flags = Flags(**found)
                return char == ":"
            else:
                raise InvalidPattern("invalid flags of a group")

    def _escaped(self) -> Node:
        char = self._take()
        places = {
            "A": Place.TEXT_START,
            "z": Place.TEXT_END,
            "b": Place.WORD_EDGE,
            "B": Place.NO_WORD_EDGE,
        }
        if char in places:
            return places[char]
        return self._escaped_class(char) or self._literal(self._escaped_char(char))

    def _escaped_class(self, char: str) -> Characters | None:
        """Return the set for the character after a backslash; None if it is a single character."""
        if char.lower() in PERL:
            return Characters(PERL[char.lower()], negated=char.isupper(), folds=self._flags.folds)
        if char not in ("p", "P"):
            return None
        name = self._until("}") if self._skip("{") else self._take()
        negated = (char == "P") is not name.startswith("^")
        name = name.removeprefix("^")
        if name == "Any":
            return Characters((("\0", LAST),), negated=negated)
        if not name or len(name) > 2 or name[0] not in CATEGORIES or name[1:] not in CATEGORIES[name[0]]:
            raise InvalidPattern(f"unknown category {name!r}")
        return Characters(category=name, negated=negated, folds=self._flags.folds)

    def _escaped_char(self, char: str) -> str:
        if char in ESCAPES:
            return ESCAPES[char]
        if char == "x":
            return self._hexadecimal()
        if char == "0" or ("1" <= char <= "7" and "0" <= self._peek() <= "7"):
            digits = char
            while len(digits) < 3 and "0" <= self._peek() <= "7":
                digits += self._take()
            return chr(int(digits, 8))
        if char < "\x80" and not _is_word(char):
            return char
        raise InvalidPattern(f"invalid escape \\{char}")

    def _hexadecimal(self) -> str:
        digits = self._until("}") if self._skip("{") else self._take() + self._take()
        valid = digits and len(digits) <= 8 and all(digit in "0123456789abcdefABCDEF" for digit in digits)
        if not valid or int(digits, 16) > ord(LAST):
            raise InvalidPattern(f"invalid character \\x{digits}")
        return chr(int(digits, 16))

    def _class(self) -> Characters:
        negated = self._skip("^")
        ranges: list[tuple[str, str]] = []
        sets: list[Characters] = []
        first = True
        while first or self._peek() != "]":
            first = False
            one = self._class_part()
            if isinstance(one, str):
                ranges.append((one, self._class_end(one)))
            else:
                sets.append(one)
        self._at += 1
        return Characters(tuple(ranges), tuple(sets), negated=negated, folds=self._flags.folds)

    def _class_part(self) -> str | Characters:
        if self._text.startswith("[:", self._at) and ":]" in self._text[self._at :]:
            self._at += 2
            name = self._until(":]")
            negated = name.startswith("^")
            if name.removeprefix("^") not in POSIX:
                raise InvalidPattern(f"unknown class [:{name}:]")
            return Characters(POSIX[name.removeprefix("^")], negated=negated)
        char = self._take()
        if char != "\\":
            return char
        escaped = self._take()
        return self._escaped_class(escaped) or self._escaped_char(escaped)

    def _class_end(self, first: str) -> str:
        """Take the end of a range that begins with ``first``; ``first`` if it is a single character."""
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return first
        self._at += 1
        char = self._take()
        last = self._escaped_char(self._take()) if char == "\\" else char
        if last < first:
            raise InvalidPattern(f"invalid range {first}-{last}")
        return last


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9 and (text == "0" or text[0] != "0")


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _cases(char: str) -> Iterable[str]:
    lower = char.lower()
    return (other for other in (lower, char.upper(), lower.upper(), char.upper().lower()) if len(other) == 1)


@dataclass(frozen=True, slots=True)
class Split:
    """Two next instructions."""

    first: int
    second: int


class Match:
    """The end of the program."""


Instruction: TypeAlias = Characters | Place | Split | Match


def assemble(node: Node) -> list[Instruction]:
    """Return the program of a pattern; an instruction without an own target is followed by the next one. Raises
    InvalidPattern if it is too large."""
    program: list[Instruction] = []
    left = 2 * MAX_INSTRUCTIONS
    """The parts that may still be emitted: those that are empty have no instruction."""

    def add(instruction: Instruction) -> int:
        if len(program) >= MAX_INSTRUCTIONS:
            raise InvalidPattern("the expression is too large")
        program.append(instruction)
        return len(program) - 1

    def emit(node: Node) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise InvalidPattern("the expression is too large")
        match node:
            case Sequence(parts):
                for part in parts:
                    emit(part)
            case Choice(branches):
                emit_choice(branches)
            case Repeat(part, least, most):
                for _ in range(least):
                    emit(part)
                emit_rest(part, None if most is None else most - least)
            case _:
                add(node)

    def emit_choice(branches: tuple[Node, ...]) -> None:
        ends = []
        for branch in branches[:-1]:
            split = add(Match())
            emit(branch)
            ends.append(add(Match()))
            program[split] = Split(split + 1, len(program))
        emit(branches[-1])
        for end in ends:
            program[end] = Split(len(program), len(program))

    def emit_rest(part: Node, most: int | None) -> None:
        """Emit up to ``most`` repetitions; None for any number."""
        if most is None:
            start = add(Match())
            emit(part)
            add(Split(start, start))
            program[start] = Split(start + 1, len(program))
            return
        splits = []
        for _ in range(most):
            splits.append(add(Match()))
            emit(part)
        for split in splits:
            program[split] = Split(split + 1, len(program))

    emit(node)
    add(Match())
    return program


class State:
    """The instructions at which the paths are after some text, and the character before them (empty at the start)."""

    __slots__ = ("at", "before", "following")

    def __init__(self, at: frozenset[int], before: str) -> None:
        self.at = at
        self.before = before
        self.following: dict[str, State] = {}


class Pattern:
    """A pattern that is matched against whole texts."""

    def __init__(self, text: str) -> None:
        """Raises InvalidPattern."""
        try:
            self._program = assemble(Parser(text).parse())
        except InvalidPattern as error:
            raise InvalidPattern(f"invalid regular expression: {error}") from None
        self._states: dict[tuple[frozenset[int], str], State] = {}
        self._kept = 0
        self._start = self._state(frozenset((0,)), "")

    def matches(self, text: str) -> bool:
        return run_now(self.match(text, YieldBudget()))

    def match(self, text: str, budget: YieldBudget) -> Cooperative[bool]:
        """Return whether the whole text matches; yields in proportion to the work."""
        state = self._start
        for char in text:
            following = state.following.get(char)
            if following is None:
                following = self._step(state, char)
                if budget.spend(1 + len(state.at)):
                    yield
            state = following
            if not state.at:
                return False
        return any(isinstance(self._program[at], Match) for at in self._reached(state, ""))

    def _step(self, state: State, char: str) -> State:
        found = frozenset(
            at + 1
            for at in self._reached(state, char)
            if isinstance(instruction := self._program[at], Characters) and instruction.has(char)
        )
        following = self._state(found, char)
        state.following[char] = following
        return following

    def _state(self, at: frozenset[int], before: str) -> State:
        """Return the state, without a difference between characters before that look the same to a Place."""
        kind = before if before in ("", "\n") else "w" if _is_word(before) else " "
        state = self._states.get((at, kind))
        if state is None:
            self._kept += len(at) + 1
            if self._kept > MAX_KEPT:
                self._states.clear()
                self._kept = 0
                self._start = State(frozenset((0,)), "")
            state = self._states[at, kind] = State(at, kind)
        self._kept += 1  # the transition to it
        return state

    def _reached(self, state: State, after: str) -> Collection[int]:
        """Return the instructions that are reached without a character, before the character ``after`` (empty at the
        end)."""
        reached: set[int] = set()
        waiting = list(state.at)
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            instruction = self._program[at]
            if isinstance(instruction, Split):
                waiting += (instruction.first, instruction.second)
            elif isinstance(instruction, Place) and _is_at(instruction, state.before, after):
                waiting.append(at + 1)
        return reached


def _is_at(place: Place, before: str, after: str) -> bool:
    match place:
        case Place.TEXT_START:
            return before == ""
        case Place.TEXT_END:
            return after == ""
        case Place.LINE_START:
            return before in ("", "\n")
        case Place.LINE_END:
            return after in ("", "\n")
    edge = _is_word(before) is not _is_word(after)
    return edge is (place is Place.WORD_EDGE)
