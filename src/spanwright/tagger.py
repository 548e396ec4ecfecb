"""A `Tagger` is an encoder and a head, and knows how text becomes words. Train it, call it, save it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from spanwright import long, text
from spanwright.batch import Batch, Example, by_length, chunks, fill_batches, key_of, pad_targets
from spanwright.data.corpora import with_context
from spanwright.encoder import Encoder
from spanwright.head import Head, States
from spanwright.select import select
from spanwright.text import TextRule
from spanwright.types import Document, Entity, Labels, Sentence, SpanwrightError, shown

SORTED_SENTENCES = 512  # sorted by length together; what a stream holds at once
PREDICT_PIECES = 4096  # in a batch, padding included
BATCHES_AT_LEAST = 8  # into which a chunk is split, so that padding stays small

Losses = dict[str, tuple[Tensor, Tensor]]
TextTokenizer = Callable[[str], Sequence[Any]]


NO_TEXTS = "expected an iterable of texts"
NO_SENTENCES = (
    "expected a list of Sentence objects, as spanwright.read gives them; for text or words call the tagger itself"
)


class Network(nn.Module):
    """All weights. One call of the encoder a batch; the head never sees a piece."""

    def __init__(self, encoder: Encoder, head: Head):
        super().__init__()
        self.encoder = encoder
        self.head = head

    def states(self, batch: Batch) -> States:
        return self.encoder(batch.pieces, self.head.prefix())

    def forward(self, batch: Batch) -> Losses:
        return self.head.loss(self.states(batch), batch.targets)

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        return self.head(self.states(batch))


class Tagger:
    def __init__(
        self, encoder: Encoder, head: Head, *, rule: TextRule | None = None, max_words: int = 256, widest: int = 32,
        tokenizer: TextTokenizer | None = None,
    ):  # fmt: skip
        self.network = Network(encoder, head)
        self.rule = rule or TextRule()
        self.max_words = max_words
        self.widest = widest  # words of the widest entity that training showed
        self.tokenizer = tokenizer  # for the rule "custom"

    def __repr__(self) -> str:
        head, encoder = type(self.head).__name__, self.encoder.config.name
        return f"<Tagger: {head} over {encoder}, labels {', '.join(self.labels)}>"

    @property
    def encoder(self) -> Encoder:
        return self.network.encoder

    @property
    def head(self) -> Head:
        return self.network.head

    @property
    def labels(self) -> Labels:
        return self.head.labels

    @property
    def reach(self) -> int:
        """Words of the widest entity to be found: as wide as the head can answer, else as training showed."""
        return self.widest if self.head.reach is None else self.head.reach

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: str | torch.device) -> Tagger:
        self.network.to(device)
        return self

    def with_options(self, **options: Any) -> Tagger:
        """The same weights with other choices: ``threshold=0.7``, ``overlap="flat"``, a bundle's ``output``."""
        twin = copy.copy(self)
        twin.network = copy.copy(self.network)
        twin.network._modules = dict(self.network._modules, head=copy.copy(self.head))
        own = [field.name for field in fields(self.head.config.inference)]
        # The head's own first: a bundle's `output` decides which others there are.
        twin.head.set_inference(**{name: value for name, value in options.items() if name in own})
        known = [field.name for field in fields(twin.head.inference)]
        known += [name for name in own if name not in known]
        for name in options:
            if name not in known:
                raise SpanwrightError(f"{name!r} cannot be changed after training; what can: {', '.join(known)}")
        twin.head.set_inference(**{name: value for name, value in options.items() if name not in own})
        return twin

    # ------------------------------------------------------------------------------------------ words to batches

    def example(self, sentence: Sentence, index: int = 0) -> Example:
        """Pieces and targets of a gold sentence."""
        pieces = self.encoder.sentence_pieces(sentence)
        return Example(pieces, self.encoder.n_pieces(pieces, self.n_prefix), self.head.targets(sentence), index)

    @property
    def n_prefix(self) -> int:
        prefix = self.head.prefix()
        return 0 if prefix is None else len(prefix)

    def batch(self, examples: Sequence[Example], seed: int = 0, epoch: int = 0) -> Batch:
        targets = pad_targets([example.targets for example in examples])
        keys = [key_of(seed, epoch, example.index) for example in examples]
        targets["key"] = torch.tensor(keys, dtype=torch.int64)
        lengths = tuple(len(example.pieces.words) for example in examples)
        return Batch(self.encoder.collate([example.pieces for example in examples], self.n_prefix), targets, lengths)

    def collate(self, sentences: Sequence[Sentence], keys: Sequence[int] | None = None) -> Batch:
        """A batch with targets; `keys` are what the sentences' random draws come from."""
        batch = self.batch([self.example(sentence, index) for index, sentence in enumerate(sentences)])
        if keys is None:
            return batch
        return Batch(batch.pieces, {**batch.targets, "key": torch.tensor(keys, dtype=torch.int64)}, batch.lengths)

    def loss(self, batch: Batch) -> Losses:
        return self.network(batch.to(self.device))

    @torch.inference_mode()
    def scores(self, batch: Batch) -> dict[str, Tensor]:
        return self.network.scores(batch.to(self.device))

    # ---------------------------------------------------------------------------------------------- to entities

    def predict(
        self, sentences: Iterable[Sentence], batch_tokens: int | None = None, batch_size: int | None = None
    ) -> list[frozenset[Entity]]:
        """The entities of each sentence. Neither number changes the answer: they trade memory for speed."""
        return list(self.predict_stream(sentences, batch_tokens, batch_size))

    def predict_stream(
        self, sentences: Iterable[Sentence], batch_tokens: int | None = None, batch_size: int | None = None
    ) -> Iterator[frozenset[Entity]]:
        """The same one by one, holding a few hundred sentences at a time."""
        inference = self.head.inference
        for candidates in self.candidates(sentences, batch_tokens, batch_size):
            yield select(candidates, inference.overlap, inference.threshold)

    def candidates(
        self, sentences: Iterable[Sentence], batch_tokens: int | None = None, batch_size: int | None = None
    ) -> Iterator[list[Entity]]:
        """All that `decode` proposes for each sentence, long ones put together again."""
        if isinstance(sentences, (str, Sentence)) or not isinstance(sentences, Iterable):
            raise SpanwrightError(f"{NO_SENTENCES}, got {shown(sentences)}")
        for chunk in chunks(iter(sentences), SORTED_SENTENCES):
            for sentence in chunk:
                if not isinstance(sentence, Sentence):
                    raise SpanwrightError(f"{NO_SENTENCES}, got {shown(sentence)} among them")
            places = [long.ranges(len(sentence), self.max_words, self.reach) for sentence in chunk]
            split = [long.parts(sentence, self.max_words, self.reach) for sentence in chunk]
            found = iter(self._decode_all(list(chain.from_iterable(split)), batch_tokens, batch_size))
            for sentence, where in zip(chunk, places, strict=True):
                yield long.merge(list(islice(found, len(where))), len(sentence), where)

    def _decode_all(
        self, parts: list[Sentence], batch_tokens: int | None, batch_size: int | None
    ) -> list[frozenset[Entity]]:
        found: list[frozenset[Entity]] = [frozenset()] * len(parts)
        for members, scores, lengths in self.scored(parts, batch_tokens, batch_size):
            for i, entities in zip(members, self.head.decode(scores, lengths), strict=True):
                found[i] = entities
        return found

    @torch.inference_mode()
    def scored(
        self, sentences: Sequence[Sentence], batch_tokens: int | None = None, batch_size: int | None = None
    ) -> Iterator[tuple[list[int], dict[str, Tensor], tuple[int, ...]]]:
        """Batch by batch: which of the sentences, their scores, their lengths. None is cut; those without words are
        left out."""
        self.network.eval()
        n_prefix = self.n_prefix
        filled = [i for i, sentence in enumerate(sentences) if sentence.words]
        pieces = [self.encoder.sentence_pieces(sentences[i]) for i in filled]
        sizes = [self.encoder.n_pieces(sentence, n_prefix) for sentence in pieces]
        order = by_length(sizes)
        if batch_size is not None:
            batches = list(chunks(iter(order), batch_size))
        else:
            budget = batch_tokens or max(512, min(PREDICT_PIECES, sum(sizes) // BATCHES_AT_LEAST))
            batches = fill_batches(sizes, budget, order)
        for members in batches:
            lengths = tuple(len(pieces[i].words) for i in members)
            batch = Batch(self.encoder.collate([pieces[i] for i in members], n_prefix), {}, lengths)
            yield [filled[i] for i in members], self.scores(batch), lengths

    # ---------------------------------------------------------------------------------------------- from text

    @overload
    def __call__(self, texts: str, *, words: None = None) -> Document: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, texts: Iterable[str], *, words: None = None) -> list[Document]: ...
    @overload
    def __call__(self, texts: None = None, *, words: Sequence[str]) -> Document: ...
    def __call__(
        self, texts: str | Iterable[str] | None = None, *, words: Sequence[str] | None = None
    ) -> Document | list[Document]:
        """A document of a text, a list of them of several texts, or one of words already split."""
        if words is not None and texts is not None:
            raise SpanwrightError("a text and words= were given: expected one of them")
        if words is not None:
            given = tuple(words) if isinstance(words, Iterable) and not isinstance(words, str) else None
            if given is None or not all(isinstance(word, str) for word in given):
                raise SpanwrightError(
                    f"words= expects a list of words, got {shown(words)}; give a string as the first argument, and "
                    "sentences one by one"
                )
            return next(self.stream([text.from_words(given)]))
        if isinstance(texts, str):
            return next(self.stream([texts]))
        if not isinstance(texts, Iterable) or isinstance(texts, (Mapping, bytes)):
            raise SpanwrightError(
                f"nothing to tag: expected a string, a list of strings, or words=[...], got {shown(texts)}"
            )
        return list(self.stream(texts))

    def stream(self, texts: Iterable[str | Document]) -> Iterator[Document]:
        """Documents with entities, in order, one by one. Memory holds a few hundred sentences, and the text itself.

        Where `texts` raises an error in the middle, what came before it is answered first.
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise SpanwrightError(f"{NO_TEXTS}, got {shown(texts)}; for one text call the tagger itself")
        waiting: list[tuple[Document, list[Sentence]]] = []
        n_sentences = 0
        wrong: Exception | None = None
        source = iter(texts)
        while True:
            try:
                given = next(source)
                document = given if isinstance(given, Document) else self.read(given)
                sentences = text.sentences_of(document)
            except StopIteration:
                break
            except Exception as error:
                wrong = error
                break
            waiting.append((document, sentences))
            n_sentences += max(1, len(sentences))  # a text without words waits as well
            if n_sentences >= SORTED_SENTENCES:
                yield from self._answer(waiting)
                waiting, n_sentences = [], 0
        yield from self._answer(waiting)
        if wrong is not None:
            raise wrong

    def read(self, given: str, id: str = "") -> Document:
        """A text as words and sentences, by the rule the model was trained with."""
        if not isinstance(given, str):
            raise SpanwrightError(f"expected text, got {type(given).__name__}: {given!r:.60}")
        return text.read_text(given, self.rule, self.tokenizer, id)

    def _answer(self, waiting: list[tuple[Document, list[Sentence]]]) -> Iterator[Document]:
        found = self.predict_stream(chain.from_iterable(self._in_context(*pair) for pair in waiting))
        for document, sentences in waiting:
            yield text.with_entities(document, list(islice(found, len(sentences))))

    def _in_context(self, document: Document, sentences: list[Sentence]) -> Iterable[Sentence]:
        """The sentences of one document, with the neighbours that the encoder reads."""
        n = self.encoder.config.context
        if not n:
            return sentences
        if document.left or document.right:  # a sentence by itself, whose neighbours are known
            return [replace(sentence, left=document.left, right=document.right) for sentence in sentences]
        return with_context((replace(sentence, doc="this one") for sentence in sentences), n)

    # -------------------------------------------------------------------------------------------------- folder

    def save(self, folder: str | Path) -> Path:
        from spanwright.folder import save

        return save(self, Path(folder))

    @classmethod
    def load(cls, place: str | Path, **options: Any) -> Tagger:
        from spanwright.folder import load

        return load(place, **options)
