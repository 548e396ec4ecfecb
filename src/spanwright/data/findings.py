"""What a reader found amiss: every case counted, the first twenty kept and shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spanwright.types import SpanwrightError

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing amiss: `where` is file:line."""

    where: str
    wrong: str
    expected: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.wrong}" + (f"; expected {self.expected}" if self.expected else "")


class Findings:
    """Counts what is added (`len`) and keeps the first twenty, so that memory does not grow with the file."""

    def __init__(self) -> None:
        self._first: list[Finding] = []
        self._count = 0

    def add(self, where: str, wrong: str, expected: str = "") -> None:
        self._count += 1
        if len(self._first) < SHOWN:
            self._first.append(Finding(where, wrong, expected))

    def take(self, others: Findings) -> None:
        """Adds all of `others`."""
        self._count += len(others)
        self._first = (self._first + others._first)[:SHOWN]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Finding]:
        """The ones that were kept."""
        return iter(self._first)

    def __str__(self) -> str:
        lines = [f"  {finding}" for finding in self._first]
        if self._count > len(self._first):
            lines.append(f"  and {self._count - len(self._first)} more")
        return "\n".join(lines)


class BadData(SpanwrightError):
    """Records that cannot be read; `findings` tells where, what is wrong and what was expected."""

    def __init__(self, message: str, findings: Findings):
        super().__init__(message)
        self.findings = findings


class BadRecord(ValueError):
    """One record that cannot be read; the reader knows the file and the line."""

    def __init__(self, wrong: str, expected: str):
        super().__init__(wrong)
        self.wrong = wrong
        self.expected = expected
