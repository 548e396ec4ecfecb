"""From a recipe to what the training loop works on: corpora read, labels and widths settled, encoder and head built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spanwright import data
from spanwright.batch import Example
from spanwright.config import DataConfig, Recipe, from_dict, shown, to_dict
from spanwright.data.corpora import find_corpus, split_off, splits, with_context
from spanwright.encoder import build_encoder
from spanwright.folder import load, widened
from spanwright.heads import build_head, head_class, name_of
from spanwright.long import training_parts
from spanwright.select import select
from spanwright.tagger import Tagger, TextTokenizer
from spanwright.text import TextRule, from_words, read_text
from spanwright.types import Labels, Sentence, SpanwrightError

Say = Callable[[str], None]

CUT_SAMPLE = 200  # sentences that are cut anew to see whether the rule fits the corpus
WORD_RULES = ("words", "hyphenated", "characters", "whitespace")


@dataclass(frozen=True)
class Prepared:
    recipe: Recipe  # with what the data decided filled in
    tagger: Tagger
    examples: list[Example]
    n_train: int  # training sentences; `examples` are more where long ones were cut
    dev: list[Sentence]
    test: list[Sentence]


def prepare(recipe: Recipe, say: Say, tokenizer: TextTokenizer | None = None) -> Prepared:
    """`tokenizer` cuts raw text where the recipe says ``words = "custom"``."""
    trained = load(recipe.train.start_from, device="cpu") if recipe.train.start_from else None
    if trained is not None:
        recipe = as_trained(recipe, trained, say)
    train, dev, test = read_splits(recipe, say, tokenizer)
    # What was set aside as dev is training data, too: a label that happens to be only there is not lost.
    set_aside = not (recipe.data.dev or "dev" in splits(recipe.data.train))
    labels = Labels.of([*train, *dev] if set_aside else train)
    if not labels:
        raise SpanwrightError(
            f"{recipe.data.train}: no entity in {len(train)} training sentences. Expected gold entities; for CoNLL "
            "files look at data.tag_column and data.word_column"
        )
    if not any(sentence.entities for sentence in dev):
        say("warning: dev has no gold entity, so no epoch is better than another; give data.dev entities")
    tagger, recipe = build(recipe, labels, train, trained)
    tagger.tokenizer = tokenizer
    warn_of_strange_labels(tagger.labels, dev, test, say)
    if trained is None:  # else the rule is settled
        say_if_text_is_cut_otherwise(train, tagger.rule, say)
    short = [part for sentence in train for part in training_parts(sentence, recipe.data.max_words)]
    if len(short) > len(train):
        say(f"{len(short) - len(train)} cuts in training sentences longer than data.max_words={recipe.data.max_words}")
    say_what_is_lost(tagger, train, short, say)
    examples = [tagger.example(sentence, index) for index, sentence in enumerate(short)]
    n_entities = sum(len(sentence.entities) for sentence in train)
    say(f"train: {len(train)} sentences, {n_entities} entities, {len(labels)} labels: {', '.join(labels)}")
    say(f"dev: {len(dev)} sentences" + (f", test: {len(test)} sentences" if test else ""))
    return Prepared(recipe, tagger, examples, len(train), dev, test)


def build(recipe: Recipe, labels: Labels, train: list[Sentence], trained: Tagger | None) -> tuple[Tagger, Recipe]:
    """A fresh tagger, or the trained one with the new labels behind its own."""
    widest = max((len(e) for sentence in train for e in sentence.entities), default=1)
    if trained is not None:
        tagger = continued(recipe, trained, labels)
        tagger.widest = max(widest, tagger.widest)
    else:
        config: Any = head_class(recipe.head_name).fit(recipe.head_config(), train)
        encoder = build_encoder(recipe.encoder)
        head = build_head(recipe.head_name, config, labels, encoder.width, encoder.input_width)
        rule = TextRule(words=recipe.data.words, sentences=recipe.data.sentences)
        tagger = Tagger(encoder, head, rule=rule, max_words=recipe.data.max_words, widest=widest)
    return tagger, replace(recipe, head_table=to_dict(tagger.head.config))


def as_trained(recipe: Recipe, trained: Tagger, say: Say) -> Recipe:
    """The recipe with what a trained model has settled: its encoder, and how text becomes words and sentences."""
    rule, data = trained.rule, recipe.data
    data = replace(data, words=rule.words, sentences=rule.sentences, max_words=trained.max_words)
    settled = replace(recipe, encoder=trained.encoder.config, data=data)
    for table in ("encoder", "data"):
        asked, kept = to_dict(getattr(recipe, table)), to_dict(getattr(settled, table))
        other = [
            f"{table}.{key} = {shown(kept[key])} (asked: {shown(asked[key])})"
            for key in kept
            if kept[key] != asked[key]
        ]
        if other:
            say(f"the model in {recipe.train.start_from} keeps {', '.join(other)}")
    return settled


def continued(recipe: Recipe, trained: Tagger, labels: Labels) -> Tagger:
    """The trained model, with the labels that are new to it and the settings of the head that the recipe changes."""
    name = name_of(type(trained.head))
    if name != recipe.head_name:
        raise SpanwrightError(
            f"{recipe.train.start_from} has the head {name!r}, the recipe {recipe.head_name!r}: training further "
            "needs the same one"
        )
    table = merged(to_dict(trained.head.config), recipe.head_table)
    config: Any = from_dict(type(trained.head).Config, table, "head")
    new = [label for label in labels if label not in trained.labels]
    return widened(trained, Labels([*trained.labels, *new]), config)


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`old` with what `new` says, table by table."""
    tables = [key for key in new if isinstance(new[key], Mapping) and isinstance(old.get(key), Mapping)]
    return {**old, **new, **{key: merged(old[key], new[key]) for key in tables}}


# ----------------------------------------------------------------------------------------------------- reading


def read_splits(
    recipe: Recipe, say: Say, tokenizer: TextTokenizer | None = None
) -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    config = recipe.data
    if not config.train:
        raise SpanwrightError(
            "data.train is missing: expected a corpus by name, a folder with train.jsonl, or a file, e.g. "
            "data.train=my.conll"
        )
    context = recipe.encoder.context
    train = read_split(config, config.train, "train", context, say, tokenizer)
    if config.limit:
        train = train[: config.limit]
    places = {split: getattr(config, split) or config.train for split in ("dev", "test")}
    there = [split for split in places if getattr(config, split) or split in splits(config.train)]
    dev, test = (
        read_split(config, places[split], split, context, say, tokenizer) if split in there else None
        for split in ("dev", "test")
    )
    if dev is None:
        train, dev = split_off(train, config.dev_fraction, recipe.run.seed)
        say(
            f"no dev given: {len(dev)} of {len(dev) + len(train)} training sentences are set aside to choose the best "
            f"epoch (data.dev_fraction={config.dev_fraction:g})"
        )
    return train, dev, test or []


def read_split(
    config: DataConfig, place: str, split: str, context: int, say: Say, tokenizer: TextTokenizer | None = None
) -> list[Sentence]:
    path = find_corpus(place, split)
    sentences: Iterable[Sentence] = data.read(path, **reading(config), tokenizer=tokenizer, tell=say)
    return list(with_context(sentences, context))


def reading(config: DataConfig) -> dict[str, Any]:
    """The arguments of `data.read` that a recipe settles."""
    return {
        "format": config.format or None, "scheme": config.scheme, "comments": config.comments,
        "word_column": config.word_column, "tag_column": config.tag_column,
        "rule": TextRule(words=config.words, sentences=config.sentences), "cut": config.cut,
        "skip_bad": config.skip_bad,
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------- telling


def warn_of_strange_labels(labels: Labels, dev: Iterable[Sentence], test: Iterable[Sentence], say: Say) -> None:
    for name, sentences in (("dev", dev), ("test", test)):
        strange = Counter(e.label for s in sentences for e in s.entities if e.label not in labels)
        if strange:
            listed = ", ".join(f"{label} ({count})" for label, count in strange.most_common(10))
            say(
                f"warning: {name} has labels that train does not have, and so nobody can find: {listed}. Train has: "
                f"{', '.join(labels)}"
            )


def say_if_text_is_cut_otherwise(train: list[Sentence], rule: TextRule, say: Say) -> None:
    """Words that the rule would cut otherwise: in raw text the tagger then meets other words than it has learnt."""
    if rule.words == "custom":
        return
    sample = train[:: -(-len(train) // CUT_SAMPLE)]
    texts = [from_words(sentence.words, sentence.spaces).text for sentence in sample]

    def agreement(words: Any) -> float:
        cut = (read_text(text, replace(rule, words=words)).words for text in texts)
        return sum(found == sentence.words for found, sentence in zip(cut, sample, strict=True)) / len(sample)

    if (own := agreement(rule.words)) > 0.8:
        return
    # Where nobody says which words have no space after them, they are joined by spaces, and cutting at spaces fits all.
    known = all(sentence.spaces for sentence in sample) and not all(all(sentence.spaces) for sentence in sample)
    others = {words: agreement(words) for words in WORD_RULES if known or words != "whitespace"}
    best = max(others, key=others.__getitem__)
    if others[best] > own + 0.1:
        say(
            f'data.words = "{rule.words}" would cut {100 * (1 - own):.0f} % of the training sentences into other words '
            f'than the corpus has, "{best}" {100 * (1 - others[best]):.0f} %. Scores on given words are the same, but '
            f'on raw text the model does better with data.words = "{best}"'
        )


def say_what_is_lost(tagger: Tagger, train: list[Sentence], short: list[Sentence], say: Say) -> None:
    """Gold that a head cannot be taught. It still counts in recall."""
    n_gold = sum(len(sentence.entities) for sentence in train)
    cut = n_gold - sum(len(sentence.entities) for sentence in short)
    if cut:
        say(f"{cut} of {n_gold} training entities lie across a cut of a long sentence and are not taught")
    for name, head in tagger.head.members().items():
        lost = Counter(
            min(len(entity), 10) for sentence in short for entity in sentence.entities - head.representable(sentence)
        )
        if lost:
            say(
                f"{lost.total()} of {n_gold} training entities ({100 * lost.total() / n_gold:.1f} %) are beyond "
                f"{f'the head {name}' if name else 'this head'} and are not taught, or cannot be answered (too wide; "
                "for some heads overlapping, or a second label on a span); such gold still counts in recall. By width "
                "in words: "
                f"{listed_widths(lost)}"
            )
        overlap = head.inference.overlap
        taught = [head.representable(sentence) for sentence in short]
        beyond = sum(len(entities - select(entities, overlap)) for entities in taught)
        if beyond:
            say(
                f"{beyond} more are taught but cannot be answered beside others with "
                f'{f"heads.{name}." if name else ""}inference.overlap = "{overlap}"'
            )


def listed_widths(lost: Counter[int]) -> str:
    """Widths from 10 on are counted together."""
    return ", ".join(f"{width if width < 10 else '10 or more'}: {lost[width]}" for width in sorted(lost))
