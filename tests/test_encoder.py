"""Words to states: against naive readings of the transformer, and for every family of encoders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_folders import ANGLES, BYTE_LEVEL, FAMILIES, WINDOW, make_folder, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from spanwright.config import EncoderConfig
from spanwright.encoder import Encoder, build_encoder, layer_stack, rebuild_encoder, tiny_encoder
from spanwright.head import States
from spanwright.pieces import SentencePieces, Specials, Tokenizer, hashed_tokenize, owners, windows
from spanwright.types import Sentence, SpanwrightError

WORDS = ("The", "mayor", "of", "Bergen", "\u00ad", "met", "the", "extraordinarily", "quiet", "press", "😀", ".")
SENTENCES = [
    Sentence(WORDS),
    Sentence(("the", "Bergen", "line")),
    Sentence(("a",)),
    Sentence(WORDS[::-1] * 4),  # longer than the window of every family here
    Sentence(("met", "him"), left=("the", "quiet", "mayor"), right=("in", "Bergen", ".")),
]
SHELF = Path(os.environ.get("SPANWRIGHT_ENCODERS") or "nowhere")

Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = make_folder(family, tmp_path_factory.mktemp(family))
        return made[family]

    return folder


def read(encoder: Encoder, sentences: Sequence[Sentence], prefix: Tensor | None = None) -> States:
    encoder.eval()
    n_prefix = 0 if prefix is None else len(prefix)
    with torch.inference_mode():
        found: States = encoder(encoder.collate(list(map(encoder.sentence_pieces, sentences)), n_prefix), prefix)
    return found


def vectors(size: int, count: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def check_independent(encoder: Encoder, prefix: Tensor | None = None) -> None:
    """No sentence sees its batch-mates, its place or the padding."""
    each = {sentence: read(encoder, [sentence], prefix) for sentence in SENTENCES}
    for order in (SENTENCES, SENTENCES[::-1], SENTENCES[:2]):
        together = read(encoder, order, prefix)
        for row, sentence in enumerate(order):
            alone, n = each[sentence], len(sentence)
            close(together.words[row, :n], alone.words[0])
            close(together.whole[row], alone.whole[0])
            close(together.prefix[row], alone.prefix[0])
            assert together.mask[row].tolist() == [i < n for i in range(together.mask.shape[1])]


def naive(encoder: Encoder, sentence: Sentence, prefix: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(words, prefix, whole) of a sentence without context: window by window, word by word, piece by piece."""
    specials, transformer = encoder.tokenizer.specials, encoder.transformer
    n_prefix = 0 if prefix is None else len(prefix)
    pieces = encoder.pieces(sentence.words)
    sizes = list(map(len, pieces))
    ranges = windows(sizes, encoder.n_positions - 2 - n_prefix)
    owner = owners(sizes, ranges).tolist()
    words: list[Any] = [None] * len(sizes)
    befores, wholes = [], []
    for row, (first, last) in enumerate(ranges):
        ids = torch.tensor([[specials.first, *(i for word in pieces[first:last] for i in word), specials.last]])
        embedded = transformer.get_input_embeddings()(ids)
        if prefix is not None:
            embedded = torch.cat([prefix[None], embedded], dim=1)
        answer = transformer(inputs_embeds=embedded, output_hidden_states=True)
        layers = answer.hidden_states[1:]
        mean4 = encoder.config.layers == "mean4"
        hidden = sum(layers[-4:]) / len(layers[-4:]) if mean4 else answer.last_hidden_state
        befores.append(hidden[0, :n_prefix])
        wholes.append(hidden[0, n_prefix])
        at = n_prefix + 1
        for n in range(first, last):
            if owner[n] == row:
                own = [hidden[0, at + i] for i in range(sizes[n])]
                pool = {"mean": sum(own) / len(own), "first": own[0], "max": torch.stack(own).amax(0)}
                words[n] = pool[encoder.config.pooling]
            at += sizes[n]
    return torch.stack(words), sum(befores) / len(befores), sum(wholes) / len(wholes)


def deep_encoder(n_layers: int = 6, **settings: Any) -> Encoder:
    """As `tiny_encoder`, with more layers and a window of 24 pieces."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    shape = BertConfig(
        vocab_size=512, hidden_size=16, num_hidden_layers=n_layers, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=24, initializer_range=0.3,
    )  # fmt: skip
    tokenizer = Tokenizer(hashed_tokenize(512, 4), Specials(1, 2, 0, 3), 11)
    return Encoder(EncoderConfig(name="tiny", **settings), BertModel(shape, add_pooling_layer=False), tokenizer, 24)


# ------------------------------------------------------------------------------------------- against naive readings


@pytest.mark.parametrize(
    ("pooling", "layers", "n_prefix"),
    [("mean", "last", 0), ("mean", "mean4", 3), ("max", "last", 3), ("max", "mean4", 0), ("first", "last", 3)],
)
def test_states_equal_a_naive_reading(pooling: str, layers: str, n_prefix: int) -> None:
    encoder = deep_encoder(pooling=pooling, layers=layers)
    prefix = vectors(16, n_prefix) if n_prefix else None
    sentences = [sentence for sentence in SENTENCES if not sentence.left]
    found = read(encoder, sentences, prefix)
    assert found.prefix.shape == (len(sentences), n_prefix, 16)
    with torch.inference_mode():
        for row, sentence in enumerate(sentences):
            words, before, whole = naive(encoder, sentence, prefix)
            close(found.words[row, : len(sentence)], words)
            close(found.whole[row], whole)
            close(found.prefix[row], before)


def test_the_mean_of_four_layers_leaves_the_embeddings_out() -> None:
    sentence = [Sentence(WORDS)]
    shallow = deep_encoder(n_layers=1)
    last = read(shallow, sentence).words
    shallow.config = EncoderConfig(name="tiny", layers="mean4")
    close(read(shallow, sentence).words, last)
    deep = deep_encoder()  # of several layers: there the mean is another thing
    deepest = read(deep, sentence).words
    deep.config = EncoderConfig(name="tiny", layers="mean4")
    assert not torch.allclose(read(deep, sentence).words, deepest)


@pytest.mark.parametrize("n_prefix", [0, 3])
def test_the_lstm_runs_over_prefix_and_words(n_prefix: int) -> None:
    encoder = deep_encoder(lstm=10)
    assert encoder.width == 10
    prefix = vectors(16, n_prefix) if n_prefix else None
    sentences = [sentence for sentence in SENTENCES if not sentence.left]
    found = read(encoder, sentences, prefix)
    with torch.inference_mode():
        for row, sentence in enumerate(sentences):
            words, before, whole = naive(encoder, sentence, prefix)
            sequence = torch.cat([before, words]) if n_prefix else words
            states = encoder.lstm(sequence[None])[0][0]
            close(found.words[row, : len(sentence)], states[n_prefix:])
            close(found.prefix[row], states[:n_prefix])
            close(found.whole[row], encoder.project_whole(whole))


def test_the_prefix_is_read_before_the_sentence() -> None:
    encoder = tiny_encoder()
    prefix = vectors(encoder.input_width).requires_grad_()
    pieces = encoder.collate([encoder.sentence_pieces(SENTENCES[0])], 3)
    seen: list[Tensor] = []
    encoder.transformer.embeddings.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    found = encoder.eval()(pieces, prefix)
    close(seen[0][0, :3], prefix)
    close(seen[0][0, 3], encoder.transformer.get_input_embeddings()(torch.tensor(encoder.tokenizer.specials.first)))
    found.words.sum().backward()
    assert prefix.grad is not None and bool((prefix.grad != 0).any(1).all())
    other = read(encoder, SENTENCES[:1], prefix.detach() + vectors(encoder.input_width, 3, seed=1))
    changed = (other.words - found.words.detach()).abs().amax(2)
    assert bool((changed > 1e-3).all())


# ------------------------------------------------------------------------------------------------------ independence


CHOICES: list[dict[str, Any]] = [
    {}, {"pooling": "max"}, {"pooling": "first"}, {"layers": "mean4"}, {"lstm": 16}, {"window": 20},
]  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("n_prefix", [0, 3])
def test_states_do_not_depend_on_batch_mates(choice: dict[str, Any], n_prefix: int) -> None:
    encoder = tiny_encoder(EncoderConfig(name="tiny", **choice))
    check_independent(encoder, vectors(encoder.input_width, n_prefix) if n_prefix else None)


words_of_all_kinds = st.text(st.characters(exclude_categories=()), max_size=30)
contexts = st.lists(words_of_all_kinds, max_size=5).map(tuple)
sentences_of_all_kinds = st.builds(
    Sentence, st.lists(words_of_all_kinds, min_size=1, max_size=40).map(tuple), left=contexts, right=contexts
)


@settings(max_examples=10)
@given(st.lists(sentences_of_all_kinds, min_size=1, max_size=4), st.booleans())
def test_every_word_of_every_sentence_has_a_state(sentences: list[Sentence], with_lstm: bool) -> None:
    encoder = tiny_encoder(EncoderConfig(name="tiny", window=24, lstm=16 if with_lstm else 0))
    found = read(encoder, sentences)
    for row, sentence in enumerate(sentences):
        states = found.words[row, : len(sentence)]
        assert bool(states.isfinite().all()) and bool((states != 0).any(1).all())
        close(states, read(encoder, [sentence]).words[0])


# --------------------------------------------------------------------------------------------- windows and context


def test_a_long_sentence_is_read_in_windows() -> None:
    encoder = tiny_encoder(EncoderConfig(name="tiny", window=20))
    sentence = SENTENCES[3]
    pieces = encoder.collate([encoder.sentence_pieces(sentence)], 3)
    assert len(pieces.ids) > 3 and pieces.ids.shape[1] + 3 <= 20
    found = read(encoder, [sentence], vectors(encoder.input_width))
    assert found.words.shape == (1, len(sentence), 32) and bool(found.words.isfinite().all())


def test_windows_change_nothing_for_an_encoder_that_sees_only_near_pieces(tmp_path: Path) -> None:
    sizes = {"local_attention": 4, "max_position_embeddings": 500}  # two pieces to each side in each of two layers
    folder = make_folder("modernbert", tmp_path, layer_types=["sliding_attention"] * 2, **sizes)
    whole, cut = (build_encoder(EncoderConfig(name=str(folder), window=window)) for window in (0, 100))
    sentence = Sentence(WORDS[:7] * 12)
    assert len(cut.collate([cut.sentence_pieces(sentence)]).ids) > 4
    assert len(whole.collate([whole.sentence_pieces(sentence)]).ids) == 1
    close(read(cut, [sentence]).words, read(whole, [sentence]).words)
    # Not because it is blind: the last word sees that it is the last.
    assert not torch.allclose(read(cut, [sentence]).words[0, -1], read(cut, [sentence]).words[0, 6], atol=1e-3)


def test_a_word_longer_than_the_window_is_read_at_both_ends(caplog: pytest.LogCaptureFixture) -> None:
    encoder = tiny_encoder()
    words = ("before", "".join(chr(97 + i % 26) for i in range(5000)), "after")
    found = read(encoder, [Sentence(words)])
    assert found.words.shape[1] == 3 and bool(found.words.isfinite().all())
    assert "5000 characters" in caplog.text
    for place in (0, -1):
        changed = list(words[1])
        changed[place] = "Z"
        other = read(encoder, [Sentence((words[0], "".join(changed), words[2]))])
        assert not torch.allclose(other.words[0, 1], found.words[0, 1], atol=1e-4)


def test_context_is_read_and_never_answered() -> None:
    encoder = tiny_encoder()
    words = ("met", "him")
    alone = read(encoder, [Sentence(words)])
    for sentence in (Sentence(words, left=("the", "mayor")), Sentence(words, right=("in", "Bergen"))):
        found = read(encoder, [sentence])
        assert found.words.shape == alone.words.shape
        assert not torch.allclose(found.words, alone.words, atol=1e-3)
    left, right = ("far",) * 500 + ("the", "mayor"), ("in", "Bergen") + ("far",) * 500
    found = read(encoder, [Sentence(words, left=left, right=right)])
    close(found.words, read(encoder, [Sentence(words, left=left[-300:], right=right[:300])]).words)
    assert encoder.n_pieces(encoder.sentence_pieces(Sentence(words, left=left, right=right)), 3) == 128


def test_the_window_is_a_setting() -> None:
    assert tiny_encoder().n_positions == 128
    wide, narrow = tiny_encoder(), tiny_encoder(EncoderConfig(name="tiny", window=20))
    assert narrow.n_positions == 20
    close(read(narrow, SENTENCES[1:2]).words, read(wide, SENTENCES[1:2]).words)  # the weights are the same
    for window in (7, 129):
        with pytest.raises(SpanwrightError, match=rf"encoder.window = {window}: expected 8 to 128.*'tiny'"):
            tiny_encoder(EncoderConfig(name="tiny", window=window))
    assert read(tiny_encoder(EncoderConfig(name="tiny", window=8)), SENTENCES).words.isfinite().all()


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    encoder = tiny_encoder(EncoderConfig(name="tiny", window=20))
    read(encoder, SENTENCES, vectors(encoder.input_width, 9))
    with pytest.raises(SpanwrightError, match=r"10 vectors before the words.*leave 8 for text.*encoder.window"):
        read(encoder, SENTENCES, vectors(encoder.input_width, 10))


# ------------------------------------------------------------------------------------------------ weights, settings


def test_the_tiny_encoder_is_always_the_same_and_leaves_chance_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = tiny_encoder(), tiny_encoder()
    assert torch.equal(torch.rand(3), expected)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])
    assert (first.width, first.input_width) == (32, 32)


def trained(encoder: Encoder) -> set[str]:
    return {name for name, parameter in encoder.transformer.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("family", FAMILIES)
def test_lower_layers_can_be_frozen(folder_of: Folders, family: str) -> None:
    encoder = build_encoder(EncoderConfig(name=str(folder_of(family)), lstm=4))
    everything = trained(encoder)
    encoder.freeze(1)
    rest, stack = trained(encoder), layer_stack(encoder.transformer)
    assert not any("embed" in name for name in rest)
    assert not any(parameter.requires_grad for parameter in stack[0].parameters())
    assert all(parameter.requires_grad for parameter in [*stack[1].parameters(), *encoder.lstm.parameters()])
    encoder.freeze(2)
    assert not any(parameter.requires_grad for parameter in stack.parameters())
    encoder.freeze(0)
    assert trained(encoder) == everything
    with pytest.raises(SpanwrightError, match=r"train.freeze_layers = 3: .* has 2 layers"):
        encoder.freeze(3)


def test_an_encoder_without_layers_cannot_be_frozen() -> None:
    with pytest.raises(SpanwrightError, match="no list of layers"):
        layer_stack(nn.Linear(2, 2))


# ------------------------------------------------------------------------------------------------------ the families


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_reads_words(folder_of: Folders, family: str) -> None:
    encoder = build_encoder(EncoderConfig(name=str(folder_of(family))))
    assert (encoder.width, encoder.input_width) == (32, 16 if family == "electra" else 32)
    assert encoder.n_positions == WINDOW
    assert all(encoder.pieces(WORDS))
    found = read(encoder, SENTENCES)
    assert found.words.shape == (5, 48, 32) and found.prefix.shape == (5, 0, 32) and found.whole.shape == (5, 32)
    assert bool(found.words.isfinite().all()) and found.words.dtype == torch.float32
    check_independent(encoder)
    prefix = vectors(encoder.input_width)
    check_independent(encoder, prefix)
    other = read(encoder, SENTENCES, vectors(encoder.input_width, seed=1))
    assert other.prefix.shape == (5, 3, 32)
    assert not torch.allclose(other.words, read(encoder, SENTENCES, prefix).words, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_prefix", [0, 3])
def test_a_sentence_may_fill_the_window_to_the_last_piece(folder_of: Folders, family: str, n_prefix: int) -> None:
    encoder = build_encoder(EncoderConfig(name=str(folder_of(family))))
    capacity = encoder.capacity(n_prefix)
    assert capacity == WINDOW - 2 - n_prefix
    prefix = vectors(encoder.input_width, n_prefix) if n_prefix else None
    for n_words, n_rows in ((capacity - 1, 1), (capacity, 1), (capacity + 1, 2)):
        sentence = Sentence(("the",) * n_words)
        assert sum(map(len, encoder.pieces(sentence.words))) == n_words
        pieces = encoder.collate([encoder.sentence_pieces(sentence)], n_prefix)
        assert (len(pieces.ids), pieces.ids.shape[1] + n_prefix <= WINDOW) == (n_rows, True)
        assert bool(read(encoder, [sentence], prefix).words.isfinite().all())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_rebuilt_from_what_is_saved(folder_of: Folders, family: str, tmp_path: Path) -> None:
    config = EncoderConfig(name=str(folder_of(family)), lstm=8)
    encoder = build_encoder(config)
    encoder.save_source(tmp_path)
    assert not list(tmp_path.glob("*.safetensors")) + list(tmp_path.glob("*.bin"))
    rebuilt = rebuild_encoder(config, tmp_path)
    assert not torch.equal(read(rebuilt, SENTENCES).words, read(encoder, SENTENCES).words)
    rebuilt.load_state_dict(encoder.state_dict())
    assert rebuilt.pieces(WORDS) == encoder.pieces(WORDS)
    assert rebuilt.n_positions == encoder.n_positions
    prefix = vectors(encoder.input_width)
    for name in ("words", "prefix", "whole"):
        found, expected = (getattr(read(one, SENTENCES, prefix), name) for one in (rebuilt, encoder))
        assert torch.equal(found, expected), name


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_is_a_setting(folder_of: Folders, family: str) -> None:
    sentence = [Sentence(WORDS[:4])]
    for dropout, alike in ((0.0, True), (0.5, False)):
        encoder = build_encoder(EncoderConfig(name=str(folder_of(family)), dropout=dropout)).train()
        with torch.no_grad():
            pieces = encoder.collate(list(map(encoder.sentence_pieces, sentence)))
            assert torch.allclose(encoder(pieces).words, read(encoder, sentence).words, atol=1e-5) == alike


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_kept_that_nothing_trains(folder_of: Folders, family: str) -> None:
    encoder = build_encoder(EncoderConfig(name=str(folder_of(family)), dropout=0.0))
    encoder(encoder.collate([encoder.sentence_pieces(Sentence(WORDS))])).words.square().sum().backward()
    idle = {name for name, parameter in encoder.transformer.named_parameters() if parameter.grad is None}
    assert not idle


@pytest.mark.parametrize("family", BYTE_LEVEL)
def test_byte_level_pieces_have_a_space_before_a_word(folder_of: Folders, family: str) -> None:
    encoder = build_encoder(EncoderConfig(name=str(folder_of(family))))
    together = encoder.source("x the bergen 😀", add_special_tokens=False)["input_ids"]
    apart = encoder.source("x", add_special_tokens=False)["input_ids"]
    assert [i for word in encoder.pieces(["the", "bergen", "😀"]) for i in word] == together[len(apart) :]


@pytest.mark.parametrize("family", FAMILIES)
def test_words_that_look_like_special_pieces_are_text(folder_of: Folders, family: str) -> None:
    encoder = build_encoder(EncoderConfig(name=str(folder_of(family))))
    special = set(encoder.source.all_special_ids) - {encoder.tokenizer.specials.unknown}
    for ids in encoder.pieces(["[SEP]", "[PAD]", "</s>", "<pad>", "<s>", "[CLS]", "x</s>y"]):
        assert ids and not special & set(ids)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_half_a_surrogate_pair_does_no_harm(folder_of: Folders, family: str) -> None:
    encoder = build_encoder(EncoderConfig(name=str(folder_of(family))))
    assert all(encoder.pieces(["\ud83d", "a\udc00b", "😀"]))


def test_a_vocabulary_file_is_tokenizer_enough(folder_of: Folders, tmp_path: Path) -> None:
    folder = make_folder("mpnet", tmp_path)
    before = build_encoder(EncoderConfig(name=str(folder)))
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(vocabulary(ANGLES)), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "BertTokenizer", "do_lower_case": true, "cls_token": "<s>", "sep_token": "</s>", '
        '"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}'
    )
    after = build_encoder(EncoderConfig(name=str(folder)))
    assert after.tokenizer.specials == before.tokenizer.specials == Specials(first=0, last=2, pad=1, unknown=3)
    assert after.pieces(WORDS) == before.pieces(WORDS)


# ----------------------------------------------------------------------------------------------- published encoders


@pytest.fixture(scope="module", params=["minilm", "granite-30m-en", "simbert-tiny-zh"])
def published(request: pytest.FixtureRequest) -> Encoder:
    name = request.param
    if name != "minilm" and not (SHELF / name).is_dir():
        pytest.skip(f"no {name} under $SPANWRIGHT_ENCODERS")
    return build_encoder(EncoderConfig(name=name))


TEXT = ("On", "17", "May", "the", "mayor", "of", "Bergen", ",", "Norway's", "second", "city", ",", "met", "the",
        "press", ".", *"北京大学在海淀区。")  # fmt: skip


@pytest.mark.slow
def test_published_encoders_read_words(published: Encoder) -> None:
    kind = published.config.name
    assert (published.width, published.input_width) == {"minilm": (384, 384), "granite-30m-en": (384, 384)}.get(
        kind, (312, 128)
    )
    assert published.n_positions == 512
    assert all(published.pieces(TEXT))
    published.transformer.double()  # their states are up to a hundred times larger, and so is what fp32 rounds off
    check_independent(published)
    check_independent(published, 0.05 * vectors(published.input_width))
    published.transformer.float()


@pytest.mark.slow
def test_published_encoders_are_rebuilt(published: Encoder, tmp_path: Path) -> None:
    published.save_source(tmp_path)
    rebuilt = rebuild_encoder(published.config, tmp_path)
    rebuilt.load_state_dict(published.state_dict())
    assert rebuilt.pieces(TEXT) == published.pieces(TEXT)
    assert torch.equal(read(rebuilt, [Sentence(TEXT)]).words, read(published, [Sentence(TEXT)]).words)


@pytest.mark.slow
def test_published_encoders_read_past_their_window(published: Encoder) -> None:
    sentence = Sentence(TEXT * 40)
    pieces = published.collate([published.sentence_pieces(sentence)])
    assert len(pieces.ids) > 1 and 500 < pieces.ids.shape[1] <= 512
    found = read(published, [sentence]).words[0]
    assert bool(found.isfinite().all())
    assert bool((found != 0).any(1).all())


@pytest.mark.slow
def test_a_smaller_window_leaves_a_word_what_it_is(published: Encoder, data: Path) -> None:
    lines = (data / "gum.jsonl").read_text(encoding="utf-8").splitlines()
    sentence = Sentence(tuple(word for line in lines for word in json.loads(line)["tokens"])[:300])
    narrow = build_encoder(replace(published.config, window=128))
    assert len(narrow.collate([narrow.sentence_pieces(sentence)]).ids) > 3
    whole, cut = (read(one, [sentence]).words[0] for one in (published, narrow))
    whole, cut = whole - whole.mean(0), cut - cut.mean(0)  # what all words have in common says nothing
    own = nn.functional.cosine_similarity(whole, cut).median()
    neighbours = nn.functional.cosine_similarity(whole, cut.roll(1, 0)).median()
    assert float(own) > float(neighbours) + (0.7 if published.config.name == "minilm" else 0.2)


@pytest.mark.slow
def test_cased_encoders_see_case(published: Encoder) -> None:
    ids = published.pieces(["Bergen", "bergen"])
    assert (ids[0] != ids[1]) == (published.config.name == "granite-30m-en")
    assert published.pieces(["Bergen"])[0] == published.pieces(["Bergen"])[0]


@pytest.mark.slow
def test_window_ranges_of_a_published_encoder_share_words(published: Encoder) -> None:
    sizes = list(map(len, published.pieces(TEXT * 60)))
    ranges = windows(sizes, published.capacity())
    assert all(second[0] < first[1] for first, second in pairwise(ranges))
    assert SentencePieces(published.pieces(TEXT)).n_pieces == sum(sizes) // 60
