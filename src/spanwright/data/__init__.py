"""Data in and out: JSONL and CoNLL files, corpora by name. `read` and `write` are the doors; no torch in here."""

from spanwright.data.corpora import find_corpus, split_off, splits, with_context
from spanwright.data.findings import BadData, Finding, Findings
from spanwright.data.read import Reader, read
from spanwright.data.write import Written, write

__all__ = [
    "BadData",
    "Finding",
    "Findings",
    "Reader",
    "Written",
    "find_corpus",
    "read",
    "split_off",
    "splits",
    "with_context",
    "write",
]
