"""Raw text to words and sentences with exact character offsets, and back: the only room that knows characters.

The laws of this room, for any Unicode text and any rule: ``text[start:end]`` is the word (or the mention), words
follow one another without overlap, and every visible character belongs to exactly one word.

How text is cut is a `TextRule`. It is saved with a model, so that text is cut in use as it was in training.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from typing import Literal, get_args

import regex

from spanwright.types import Document, Entity, Mention, Sentence, SpanwrightError

WordRule = Literal["words", "hyphenated", "characters", "whitespace", "custom"]
SentenceRule = Literal["punctuation", "lines", "none"]
Spans = tuple[tuple[int, int], ...]
Tokenizer = Callable[[str], Iterable[str] | Iterable[tuple[int, int]]]


def _check_choice(name: str, given: str, known: Sequence[str]) -> None:
    if given in known:
        return
    near = difflib.get_close_matches(str(given), known, 1)
    meant = f'; did you mean "{near[0]}"?' if near else ""
    raise SpanwrightError(f'{name}="{given}" is unknown; known are {", ".join(known)}{meant}')


@dataclass(frozen=True)
class TextRule:
    """How raw text is cut into words and sentences.

    `words`:

    ============== ==================================================================================================
    "words"        For languages with spaces. Punctuation and hyphens are words (``well-known`` is three), English
                   clitics are split off (``do n't``, ``it 's``, ``gon na``), French and Italian articles too
                   (``l' homme``). Kept whole: numbers (``1,000.50``, ``10:30``), abbreviations (``Dr.``, ``U.S.``),
                   URLs, e-mail addresses, ``@user``, ``#tag``, emoji, letters with their combining marks. Characters
                   of scripts written without spaces (Han, Kana, Bopomofo, Thai, Lao, Khmer, Burmese) stand alone.
    "hyphenated"   The same, but hyphens, slashes and plus signs stay in the word: ``IL-2``, ``NF-kappaB/Rel``,
                   ``CD4+``, ``PU.1``. For corpora with such words, as GENIA.
    "characters"   Every character as a reader counts them (an emoji sequence or a letter with its marks is one).
    "whitespace"   What stands between spaces.
    "custom"       What the user's own tokenizer says; see `read_text`.
    ============== ==================================================================================================

    `sentences`: "punctuation" cuts after ``. ! ? 。`` and their kin with closing quotes (not after abbreviations,
    initials or list numbers), at blank lines, before list items, and where a line of 120 characters or more begins or
    ends; any other line break is a space to it. "lines" makes every line a sentence, "none" the whole text.
    """

    words: WordRule = "words"
    sentences: SentenceRule = "punctuation"

    def __post_init__(self) -> None:
        _check_choice("words", self.words, get_args(WordRule))
        _check_choice("sentences", self.sentences, get_args(SentenceRule))


class CutWord(ValueError):
    """Characters start or end inside a word."""


DEFAULT_RULE = TextRule()


def read_text(text: str, rule: TextRule = DEFAULT_RULE, tokenizer: Tokenizer | None = None, id: str = "") -> Document:
    """The words and sentences of `text`, without entities.

    `tokenizer` belongs to the rule "custom": it takes the text and gives its words from left to right, as strings
    or as (start, end) characters. It may leave out nothing but spaces and invisible characters.
    """
    if not isinstance(text, str):
        raise SpanwrightError(f"a text must be a str, got {type(text).__name__}: {text!r:.60}")
    if rule.words == "custom" and tokenizer is None:
        raise SpanwrightError(
            'the text rule says words="custom", but no tokenizer was given. Pass the tokenizer that was used in '
            "training: a function that takes a text and gives its words, as strings or as (start, end) characters."
        )
    if rule.words != "custom" and tokenizer is not None:
        raise SpanwrightError(
            f'a tokenizer was given, but the text rule says words="{rule.words}" and would ignore it. '
            'Leave the tokenizer out, or train with words="custom".'
        )
    if tokenizer is not None:
        offsets = _align(text, tokenizer(text))
    else:
        offsets = tuple(match.span() for match in _word_pattern(rule.words).finditer(text))
    return Document(text, offsets, _sentences(text, offsets, rule.sentences), id=id)


def from_words(
    words: Sequence[str], spaces: Sequence[bool] = (), sentences: Sequence[tuple[int, int]] = (), id: str = ""
) -> Document:
    """A document of words that are already cut; its text is put together from them.

    `spaces` says whether a space follows each word (unknown: one after every word); `sentences` are words start:end
    (unknown: all words are one).
    """
    if spaces and len(spaces) != len(words):
        raise SpanwrightError(f"`spaces` must have one value a word: got {len(spaces)} for {len(words)} words")
    if "" in words:
        raise SpanwrightError(f"word {list(words).index('')} is empty; leave empty words out")
    edges = [0, *(edge for span in sentences for edge in span), len(words)]
    if sentences and (edges[::2] != edges[1::2] or any(start >= end for start, end in sentences)):
        raise SpanwrightError(f"sentences must cover words 0:{len(words)} in order, without gaps: got {sentences}")
    parts, offsets, position = [], [], 0
    for i, word in enumerate(words):
        offsets.append((position, position + len(word)))
        gap = " " if (spaces[i] if spaces else i + 1 < len(words)) else ""
        parts.append(word + gap)
        position += len(word) + len(gap)
    whole = ((0, len(words)),) if words else ()
    return Document("".join(parts), tuple(offsets), tuple((a, b) for a, b in sentences) or whole, id=id)


def sentences_of(document: Document) -> list[Sentence]:
    """The sentences of `document` with its entities. Sentences that an entity crosses are joined: none is lost."""
    words, sentences = document.words, []
    ranges = _joined(document)
    starts = [start for start, _ in ranges]
    found: list[list[Entity]] = [[] for _ in ranges]
    for mention in document.entities:
        start, end = _words_of(document, mention)
        i = bisect_right(starts, start) - 1
        found[i].append(Entity(start - starts[i], end - starts[i], mention.label, mention.score))
    for i, (start, end) in enumerate(ranges):
        name = f"{document.id}:{i}" if document.id else ""
        spaces = tuple(_space_follows(document, word) for word in range(start, end))
        sentences.append(Sentence(words[start:end], frozenset(found[i]), id=name, doc=document.id, spaces=spaces))
    return sentences


def with_entities(document: Document, found: Sequence[Iterable[Entity]]) -> Document:
    """`document` with the entities `found` in the sentences that `sentences_of` gave, and no others."""
    ranges = _joined(document)
    if len(found) != len(ranges):
        raise ValueError(f"the document has {len(ranges)} sentences, got entities for {len(found)}")
    mentions = []
    for (first, last), entities in zip(ranges, found, strict=True):
        for entity in entities:
            if not 0 <= entity.start < entity.end <= last - first:
                raise ValueError(f"{entity} lies outside its sentence of {last - first} words")
            start, end = first + entity.start, first + entity.end
            start_char, end_char = document.offsets[start][0], document.offsets[end - 1][1]
            text = document.text[start_char:end_char]
            mentions.append(Mention(start_char, end_char, entity.label, text, entity.score, start, end))
    return Document(document.text, document.offsets, document.sentences, in_order(mentions), document.id)


def in_order(mentions: Iterable[Mention]) -> tuple[Mention, ...]:
    """Mentions as a document holds them: by where they start, the longer first."""
    return tuple(sorted(mentions, key=lambda mention: (mention.start_char, -mention.end_char, mention.label)))


def to_words(
    document: Document, start_char: int, end_char: int, cut: Literal["widen", "refuse"] = "widen"
) -> tuple[int, int]:
    """The words start:end that characters start:end touch. Where they cut a word: widened to it, or `CutWord`."""
    _check_choice("cut", cut, ("widen", "refuse"))
    text, offsets = document.text, document.offsets
    if not 0 <= start_char < end_char <= len(text):
        raise ValueError(f"characters {start_char}:{end_char} are not within the text, which has {len(text)}")
    start = bisect_right(offsets, start_char, key=lambda span: span[1])
    end = bisect_left(offsets, end_char, key=lambda span: span[0])
    if start >= end:
        raise ValueError(f"characters {start_char}:{end_char} hold no word: {text[start_char:end_char]!r}")
    if cut == "refuse":
        # What is cut off may be invisible (a soft hyphen, a joiner): then nothing a reader sees is cut.
        for word, left_out in (start, (offsets[start][0], start_char)), (end - 1, (end_char, offsets[end - 1][1])):
            if left_out[0] < left_out[1] and _visible().search(text, *left_out):
                raise CutWord(
                    f"characters {start_char}:{end_char} ({text[start_char:end_char]!r}) cut the word "
                    f"{text[slice(*offsets[word])]!r} at characters {offsets[word][0]}:{offsets[word][1]}"
                )
    return start, end


def rebuild(
    sentences: Iterable[Sentence], rule: TextRule = DEFAULT_RULE, tokenizer: Tokenizer | None = None
) -> Iterator[Document]:
    """Raw documents from pre-split sentences: text by their `spaces`, words by `rule`, gold entities as mentions.

    Sentences that follow one another and share `doc` make one document. A mention has the characters of the gold
    entity; its words are those of `rule` that it touches.
    """
    numbered = ((sentence.doc or i, sentence) for i, sentence in enumerate(sentences))
    for _, group in groupby(numbered, key=lambda pair: pair[0]):
        members = [sentence for _, sentence in group if sentence.words]
        if not members:
            continue
        text, mentions = "", []
        for sentence in members:
            given = from_words(sentence.words, sentence.spaces)
            for entity in sentence.entities:
                start, end = given.offsets[entity.start][0], given.offsets[entity.end - 1][1]
                mentions.append((len(text) + start, len(text) + end, entity))
            text += given.text + ("\n" if rule.sentences == "lines" else "" if sentence.spaces else " ")
        document = read_text(text, rule, tokenizer, id=members[0].doc or members[0].id)
        found = []
        for start, end, entity in mentions:
            try:
                words = to_words(document, start, end)
            except ValueError:  # of invisible characters alone, where the rule sees no word: its characters are kept
                words = (-1, -1)
            found.append(Mention(start, end, entity.label, text[start:end], entity.score, *words))
        yield Document(document.text, document.offsets, document.sentences, in_order(found), document.id)


# Sentences and entities


def _words_of(document: Document, mention: Mention) -> tuple[int, int]:
    if mention.start < 0:
        return to_words(document, mention.start_char, mention.end_char)
    return mention.start, mention.end


def _joined(document: Document) -> Spans:
    """The sentences of `document`, those joined that an entity crosses."""
    starts = [start for start, _ in document.sentences]
    crossed: set[int] = set()
    for mention in document.entities:
        start, end = _words_of(document, mention)
        crossed.update(range(bisect_right(starts, start), bisect_right(starts, end - 1)))
    kept = [start for i, start in enumerate(starts) if i not in crossed]
    return tuple(pairwise([*kept, len(document.offsets)])) if kept else ()


def _space_follows(document: Document, word: int) -> bool:
    end = document.offsets[word][1]
    return document.text[end : end + 1].isspace()


def _sentences(text: str, offsets: Spans, rule: SentenceRule) -> Spans:
    if not offsets:
        return ()
    starts = [start for start, _ in offsets]
    breaks = () if rule == "none" else _sentence_pattern(rule).finditer(text)
    cuts = {bisect_left(starts, match.end()) for match in breaks} - {0, len(offsets)}
    return tuple(pairwise([0, *sorted(cuts), len(offsets)]))


# A user's own tokenizer


def _align(text: str, words: Iterable[object]) -> Spans:
    """Where the words of a user's tokenizer lie. Spaces at their ends are dropped, and words of nothing else."""
    offsets: list[tuple[int, int]] = []
    position = 0
    for i, word in enumerate(words):
        start, end = _place(text, word, position)
        if start < position or _visible().search(text, position, start):
            raise SpanwrightError(
                f"word {i} of the tokenizer, {word!r}, cannot be aligned to the text, which goes on at character "
                f"{position} with {text[position : position + 20]!r}. Words must be pieces of the text, or their "
                "(start, end) characters, from left to right, and leave out nothing but spaces."
            )
        if start < end:
            offsets.append((start, end))
            position = end
    left_out = _visible().search(text, position)
    if left_out:
        raise SpanwrightError(
            f"the words of the tokenizer leave out the end of the text, from character {left_out.start()}: "
            f"{text[left_out.start() : left_out.start() + 20]!r}. Every visible character must belong to a word."
        )
    return tuple(offsets)


def _place(text: str, word: object, position: int) -> tuple[int, int]:
    """Characters start:end of `word` without the spaces at its ends; start is -1 where it is not in the text."""
    match word:
        case str():
            bare = word.strip()
            start = text.find(bare, position)
            return start, start + len(bare)
        case (int(start), int(end)) if 0 <= start <= end <= len(text):
            bare = text[start:end].strip()
            start = text.find(bare, start)
            return start, start + len(bare)
        case _:
            return -1, -1


# Patterns. What repeats and may then fail is possessive or bounded, so that no text takes quadratic time.

INVISIBLE = r"[\s\x1c-\x1f\p{Cc}[\p{Cf}--\p{GCB=Prepend}]]"
JOINER = r"[\u00ad\u061c\u200c-\u200f\u2060\ufeff]"  # invisible within a word: soft hyphen, joiners, direction marks
UNSPACED = r"[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Bopo}\p{LB=SA}]"  # scripts without spaces between words
LETTER = rf"[\p{{L}}--{UNSPACED}]"
FIRST = rf"[[\p{{L}}\p{{N}}\p{{GCB=Prepend}}]--{UNSPACED}]"  # a word begins with it
NEXT = rf"[{FIRST}\p{{M}}]"  # and goes on with it

# What a reader counts as one character. Regional indicators are paired here, since \X counts them from the start of
# their row each time; and \X would take the space after a prefixed sign.
CHARACTER = rf"(?!{INVISIBLE})(?:\p{{RI}}{{2}}\p{{M}}*+|\p{{GCB=Prepend}}++(?!{FIRST})|\X)"

# Each of the next four begins with a guard that lets most words pass by quickly.
HOST = r"(?:[A-Za-z0-9\-]{1,63}+\.){1,8}"
DOMAIN = r"(?:com|org|net|edu|gov|mil|info|biz|io|ai|app|dev|tv|[a-z]{2}(?=/))(?![A-Za-z0-9])"
URL_INSIDE = rf"[[\p{{L}}\p{{M}}\p{{N}}\-._~:/?#\[\]@!$&'()*+,;=%|]--{UNSPACED}]"
URL_END = rf"[[\p{{L}}\p{{M}}\p{{N}}\-_~/#@$&*+=%|]--{UNSPACED}]"
ADDRESS = (
    rf"(?=[A-Za-z0-9_+\-]{{1,64}}+[.:@])(?:(?:(?:https?|ftp)://|www\.){URL_INSIDE}*{URL_END}"
    rf"|[A-Za-z0-9_][A-Za-z0-9_.+\-]{{0,63}}+@{HOST}[A-Za-z]{{2,24}}(?![A-Za-z0-9])"
    rf"|{HOST}{DOMAIN}(?:[/:?#]{URL_INSIDE}*{URL_END})?+)"
)
KNOWN = (
    r"(?:Mr|Mrs|Ms|Mlle|Mme|Dr|Prof|Rev|Fr|Hon|Gen|Col|Lt|Maj|Capt|Sgt|Cmdr|Adm|Gov|Sen|Rep|Pres|St|Ste|Mt|Ft"
    r"|Jr|Sr|Inc|Ltd|Co|Corp|Bros|Dept|Univ|Assn|Ave|Blvd|[Vv]s|al|etc|[Cc]f|[Cc]a|[Aa]pprox|[Vv]iz|[Ee]ds?|Ph\.D|[MB]\.Sc"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|Mon|Tues?|Wed|Thu|Thurs|Fri"
    r"|(?:[Ff]igs?|[Ee]qs?|[Nn]os?|[Vv]ols?|[Cc]h|[Ss]ec|[Aa]rt|pp?)(?=\.\s?\p{Nd}))"
)
# Words that begin a sentence after what may also end one: a letter with a full stop (plan B., U.S., p.m.), Inc., etc.
OPENERS = (
    r"(?:The|This|That|These|Those|There|Then|It|Its|He|His|She|Her|We|Our|They|Their|I|My|You|Your|In|On|At|To|From|For|By"
    r"|With|But|And|So|Also|However|As|If|When|While|After|A|An|What|Who|How|Why)"
)
ABBREVIATION = (
    rf"(?=\p{{L}}{{1,6}}+\.)(?:{KNOWN}\.|{LETTER}(?:\.{LETTER}){{1,8}}+(?!{NEXT})\.?+"  # U.S., e.g.
    rf"|(?!I\b)\p{{Lu}}\.(?=\s{{1,2}}+(?!{OPENERS}\s)\p{{Lu}}))"  # the initial of a name
)
CLITIC = rf"['’](?i:s|m|d|re|ve|ll)(?!{NEXT})"
NOT = rf"[nN]['’][tT](?!{NEXT})"
ELIDED = (
    rf"(?i:[cdjlmnst]|(?:jus|lors|puis|quel|pres)?qu|dell|nell|dall|sull|all|un)(?!{CLITIC}|['’][tT](?!{NEXT}))['’]"
)
APOSTROPHE = (
    rf"(?=\p{{L}}{{0,64}}+['’])(?:{CLITIC}|{NOT}|{ELIDED}(?={LETTER})"  # l'|homme
    rf"|(?={LETTER}++(?<=[nN])['’][tT](?!{NEXT})){LETTER}+?(?={NOT}))"  # ca|n't
)
FUSED = rf"(?=[cgwCGW])(?i:(?:gon|wan)(?=na(?!{NEXT}))|got(?=ta(?!{NEXT}))|can(?=not(?!{NEXT})))"  # gon|na

WORD = rf"(?:(?<![{NEXT}.])\.(?=\p{{Nd}}))?+{FIRST}{NEXT}*+"
INSIDE = (  # what may stand between two parts of one word
    rf"{JOINER}++|_++|(?!{CLITIC})['’]|(?<=\p{{Lu}})&(?=\p{{Lu}})"
    r"|(?<=\p{Nd})[.:/٫٬](?=\p{Nd})|(?<=\p{Nd}),(?=\p{Nd}{3}(?!\p{Nd}))"
)
HYPHENATED = r"['’]?[\-‐‑/]|\.(?=\p{Nd})"
TAG = rf"(?<!{NEXT})[@#＠＃][_{FIRST}][_{NEXT}]*+|&(?:[A-Za-z]{{2,8}}|#\p{{Nd}}{{1,6}});"  # @user, #tag, &amp;
ROW = r"([\-.=*_~])\1++|[!?]{2,}+|``|''"

STOP = r"[\p{STerm}…]"
CLOSING = r"""(?:["'”’»›)\]}」』）】》〉]|\s?\[\p{Nd}{1,3}\])"""  # quotes, brackets, the number of a note
NEWLINE = r"(?>\r\n|[\n\r\x0b\x0c\x85\u2028\u2029])"
IN_LINE = r"[^\n\r\x0b\x0c\x85\u2028\u2029]"
INITIAL = rf"(?<![{NEXT}'’])(?!I\b)\p{{Lu}}|\.{LETTER}"
ENDING = r"(?:Jr|Sr|Inc|Ltd|Co|Corp|Bros|Ave|Blvd|al|etc)"
LIST_NUMBER = rf"(?:\A|[\n\r]|(?<!{KNOWN})[.!?]\s)[ \t]{{0,8}}\p{{Nd}}{{1,3}}(?:\.\p{{Nd}}{{1,3}}){{0,3}}"

SENTENCE_ENDS = (
    rf"[。！？｡]{STOP}*+{CLOSING}*+",
    rf"(?<!{STOP})(?:…|(?<!(?<!{NEXT}){KNOWN}|{INITIAL}|{LIST_NUMBER})\.|(?<={INITIAL}|{ENDING})\.(?=\s{{1,2}}{OPENERS}\s))"
    rf"{STOP}*+{CLOSING}*+(?=\s++(?!\p{{Ll}}))",
    rf"(?<!{STOP})[{STOP}--[.…]]{STOP}*+(?:(?=\s)|{CLOSING}++(?=\s++(?!\p{{Ll}})))",
    rf"{NEWLINE}(?=[ \t]*+{NEWLINE})|\u2029",  # a blank line
    rf"{NEWLINE}(?=[ \t]*+(?:[\-*•‣◦▪]|\p{{Nd}}{{1,3}}[.)]|\(?[a-z]\))[ \t])",  # a list item
    # Lines this long are not wrapped by hand: where they end, a paragraph ends.
    rf"(?:(?<={IN_LINE}{{120}}){NEWLINE}|{NEWLINE}(?={IN_LINE}{{120}}))(?!\s*+\p{{Ll}})",
)


@cache
def _visible() -> regex.Pattern[str]:
    return regex.compile(rf"(?V1)(?!{INVISIBLE}).", regex.DOTALL)


@cache
def _word_pattern(rule: WordRule) -> regex.Pattern[str]:
    if rule == "characters":
        return regex.compile(rf"(?V1){CHARACTER}")
    if rule == "whitespace":
        return regex.compile(rf"(?V1)(?!{INVISIBLE})[^\s\x1c-\x1f]++")
    word = rf"{WORD}(?:(?:{INSIDE}){NEXT}++)*+"
    if rule == "hyphenated":
        word = rf"{WORD}(?:(?:{INSIDE}|{HYPHENATED}){NEXT}++)*+(?:\+{{1,2}}+(?!{NEXT}))?+"
    kinds = (rf"(?={UNSPACED})\X", ADDRESS, ABBREVIATION, APOSTROPHE, FUSED, word, TAG, ROW, CHARACTER)
    return regex.compile(rf"(?V1)(?!{INVISIBLE})(?:{'|'.join(kinds)})")


@cache
def _sentence_pattern(rule: SentenceRule) -> regex.Pattern[str]:
    return regex.compile("(?V1)" + (NEWLINE if rule == "lines" else "|".join(SENTENCE_ENDS)))
