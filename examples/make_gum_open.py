"""Cuts examples/gum_open out of the GUM corpus: named entities, three genres, whole documents.

    SPANWRIGHT_DATA=/folder/of/corpora python examples/make_gum_open.py

It reads $SPANWRIGHT_DATA/gum_named/{train,dev,test}.jsonl, takes the documents of the three genres in turn, in the
order of the corpus, until a split is large enough, and writes examples/gum_open/{train,dev,test}.jsonl.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, zip_longest
from pathlib import Path

from spanwright.data import find_corpus, read, write
from spanwright.types import Sentence, SpanwrightError

# From Wikipedia, Wikinews and Wikivoyage: full of names, and free to share; see gum_open/README.md.
GENRES = ("bio", "news", "voyage")
SENTENCES = {"train": 1800, "dev": 250, "test": 250}

Text = list[Sentence]


def genre(doc: str) -> str:
    """``GUM_news_nasa`` -> ``news``."""
    return doc.split("_")[1]


def texts_in_turn(sentences: Iterable[Sentence]) -> Iterator[Text]:
    """Whole documents of the open genres: the first of each genre, then the second of each, and so on."""
    texts = [list(members) for _, members in groupby(sentences, key=lambda sentence: sentence.doc)]
    by_genre = [[text for text in texts if genre(text[0].doc) == name] for name in GENRES]
    return (text for text in chain.from_iterable(zip_longest(*by_genre)) if text is not None)


def cut(sentences: Iterable[Sentence], wanted: int) -> list[Sentence]:
    """Whole documents until there are `wanted` sentences."""
    taken: list[Sentence] = []
    for text in texts_in_turn(sentences):
        if len(taken) >= wanted:
            break
        taken += text
    return sorted(taken, key=lambda sentence: sentence.doc)


def main() -> None:
    folder = Path(__file__).parent / "gum_open"
    for split, wanted in SENTENCES.items():
        sentences = cut(read(find_corpus("gum_named", split)), wanted)
        written = write(folder / f"{split}.jsonl", sentences)
        texts = len({sentence.doc for sentence in sentences})
        print(f"{split}: {texts} texts, {written.sentences} sentences, {written.entities} entities")


if __name__ == "__main__":
    try:
        main()
    except SpanwrightError as error:
        sys.exit(str(error))
