"""Pieces -> transformer -> `States`: one call a batch. Pooling, BiLSTM and prefix vectors live here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spanwright import pretrained
from spanwright.config import EncoderConfig
from spanwright.head import States
from spanwright.pieces import (
    Pieces,
    SentencePieces,
    Specials,
    Tokenizer,
    hashed_tokenize,
    layout,
    n_cells,
    pretrained_tokenize,
)
from spanwright.types import Sentence, SpanwrightError

LEAST_WINDOW = 8  # pieces; with fewer a word has no neighbours


class Encoder(nn.Module):
    """A transformer that reads pieces and answers with one vector a word."""

    def __init__(self, config: EncoderConfig, transformer: Any, tokenizer: Tokenizer, n_positions: int):
        super().__init__()
        self.config = config
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.n_positions = n_positions  # of a row, special pieces and prefix included
        self.source: Any = None  # the Hugging Face tokenizer, to be saved with the model
        hidden = int(transformer.config.hidden_size)
        self.width = config.lstm or hidden
        self.input_width = int(transformer.get_input_embeddings().embedding_dim)
        if config.lstm:
            self.lstm_dropout = nn.Dropout(config.lstm_dropout)
            self.lstm = nn.LSTM(hidden, config.lstm // 2, batch_first=True, bidirectional=True)
            self.project_whole = nn.Linear(hidden, config.lstm)

    def pieces(self, words: tuple[str, ...] | list[str]) -> list[list[int]]:
        return self.tokenizer(words)

    def sentence_pieces(self, sentence: Sentence) -> SentencePieces:
        return SentencePieces(*map(self.pieces, (sentence.words, sentence.left, sentence.right)))

    def capacity(self, n_prefix: int = 0) -> int:
        """How many pieces of text fit into one row."""
        capacity = self.n_positions - 2 - n_prefix
        if capacity < self.tokenizer.longest:
            raise SpanwrightError(
                f"the head puts {n_prefix} vectors before the words; of the {self.n_positions} pieces that the encoder "
                f"reads at once they leave {capacity} for text, expected {self.tokenizer.longest} at least. "
                "Raise encoder.window, take an encoder that reads more, or train with fewer labels"
            )
        return capacity

    def n_pieces(self, sentence: SentencePieces, n_prefix: int = 0) -> int:
        return n_cells(sentence, self.capacity(n_prefix), n_around=2 + n_prefix)

    def collate(self, sentences: list[SentencePieces], n_prefix: int = 0) -> Pieces:
        return layout(sentences, self.capacity(n_prefix), self.tokenizer.specials, self.config.pooling == "first")

    def forward(self, pieces: Pieces, prefix: Tensor | None = None) -> States:
        hidden = self.read(pieces, prefix)  # [R, P+T, H]
        n_prefix = 0 if prefix is None else len(prefix)
        words = pool_words(hidden[:, n_prefix:], pieces, self.config.pooling)  # [B, N, H]
        front = mean_rows(hidden[:, : n_prefix + 1], pieces)  # [B, P+1, H]: the prefix, then [CLS]
        before, whole = front[:, :n_prefix], front[:, n_prefix]
        if self.config.lstm:
            before, words = self.recur(before, words, pieces.words)
            whole = self.project_whole(whole)
        return States(words=words, mask=pieces.words, prefix=before, whole=whole)

    def read(self, pieces: Pieces, prefix: Tensor | None) -> Tensor:
        """The transformer's answer for every row, in fp32: the last layer, or the mean of the last four."""
        mean4 = self.config.layers == "mean4"
        if prefix is None:
            inputs: dict[str, Tensor] = {"input_ids": pieces.ids}
            mask = pieces.mask
        else:
            embedded = self.transformer.get_input_embeddings()(pieces.ids)
            before = prefix.to(embedded.dtype).expand(len(embedded), -1, -1)  # prefix first, then [CLS]
            inputs = {"inputs_embeds": torch.cat([before, embedded], dim=1)}
            mask = torch.cat([pieces.mask.new_ones(before.shape[:2]), pieces.mask], dim=1)
        answer = self.transformer(**inputs, attention_mask=mask.long(), output_hidden_states=mean4, return_dict=True)
        if not mean4:
            return answer.last_hidden_state.float()
        return torch.stack(answer.hidden_states[1:][-4:]).float().mean(0)  # the first are the embeddings

    def recur(self, before: Tensor, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The BiLSTM over [prefix; words]."""
        n_prefix = before.shape[1]
        sequence = self.lstm_dropout(torch.cat([before, words], dim=1))
        lengths = (mask.sum(1) + n_prefix).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(sequence, lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=sequence.shape[1]
        )
        return states[:, :n_prefix], states[:, n_prefix:]

    def freeze(self, layers: int) -> None:
        """Stops training of the embeddings and the first `layers` layers; 0 trains everything again."""
        for parameter in self.parameters():
            parameter.requires_grad_(True)
        if not layers:
            return
        stack = layer_stack(self.transformer)
        if layers > len(stack):
            raise SpanwrightError(
                f"train.freeze_layers = {layers}: the encoder {self.config.name!r} has {len(stack)} layers. "
                "To train nothing of it at all, set train.freeze_epochs to the number of epochs"
            )
        above = {parameter for layer in stack[layers:] for parameter in layer.parameters()}
        for parameter in self.transformer.parameters():  # those of the embeddings come first
            if parameter in above:
                return
            parameter.requires_grad_(False)

    def save_source(self, folder: Path) -> None:
        """What it takes to build this encoder again without its weights: the transformer's config and the tokenizer."""
        if self.source is not None:
            self.transformer.config.save_pretrained(folder)
            self.source.save_pretrained(folder)


def pool_words(hidden: Tensor, pieces: Pieces, pooling: str) -> Tensor:
    """[R, T, H] -> [B, N, H]. One pass over the pieces; "first" has only first pieces to add up."""
    n_sentences, n_words = pieces.words.shape
    slots, width = n_sentences * n_words + 1, hidden.shape[-1]  # the last slot takes what no word reads
    flat, word = hidden.reshape(-1, width), pieces.word.reshape(-1)
    if pooling == "max":
        index = word[:, None].expand(-1, width)
        pooled = flat.new_zeros(slots, width).scatter_reduce(0, index, flat, "amax", include_self=False)
    else:
        counts = torch.bincount(word, minlength=slots).clamp(min=1)
        pooled = flat.new_zeros(slots, width).index_add(0, word, flat) / counts[:, None]
    return pooled[:-1].view(n_sentences, n_words, width)


def mean_rows(rows: Tensor, pieces: Pieces) -> Tensor:
    """[R, ...] -> [B, ...]: the mean over the windows of each sentence."""
    n_sentences = len(pieces.words)
    if len(rows) == n_sentences:
        return rows
    counts = torch.bincount(pieces.sentence, minlength=n_sentences)
    summed = rows.new_zeros(n_sentences, *rows.shape[1:]).index_add(0, pieces.sentence, rows)
    return summed / counts.view(-1, *[1] * (rows.dim() - 1))


def layer_stack(transformer: nn.Module) -> nn.ModuleList:
    """The layers of a transformer of any family: its longest list of modules."""
    lists = [module for module in transformer.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise SpanwrightError(
            f"{type(transformer).__name__} has no list of layers, so train.freeze_layers cannot work: set it to 0"
        )
    return max(lists, key=len)


def build_encoder(config: EncoderConfig) -> Encoder:
    """From a name, a folder or a hub id, with its weights."""
    if config.name == "tiny":
        return tiny_encoder(config)
    place = pretrained.locate(config.name)
    return _pretrained_encoder(config, *pretrained.load_transformer(place, config.revision, config.dropout))


def rebuild_encoder(config: EncoderConfig, folder: Path) -> Encoder:
    """From what `save_source` wrote; the weights are the caller's to load."""
    if config.name == "tiny":
        return tiny_encoder(config)
    return _pretrained_encoder(config, *pretrained.empty_transformer(folder, config.dropout))


def _pretrained_encoder(config: EncoderConfig, transformer: nn.Module, tokenizer: Any) -> Encoder:
    window = window_of(config, pretrained.n_positions(transformer))
    tokenize, specials = pretrained_tokenize(tokenizer), pretrained.specials(tokenizer)
    encoder = Encoder(config, transformer, Tokenizer(tokenize, specials, longest_word(window)), window)
    encoder.source = tokenizer
    return encoder


def window_of(config: EncoderConfig, n_positions: int) -> int:
    """Pieces in a row: as many as asked for, or all that the transformer reads."""
    window = config.window or n_positions
    if not LEAST_WINDOW <= window <= n_positions:
        raise SpanwrightError(
            f"encoder.window = {window}: expected {LEAST_WINDOW} to {n_positions}, which is as much as {config.name!r} "
            "reads at once; 0 takes it all"
        )
    return window


def longest_word(window: int) -> int:
    """Pieces that are read of one word: half a row, so that there is room around it."""
    return (window - 2) // 2


def tiny_encoder(config: EncoderConfig | None = None, n_positions: int = 128) -> Encoder:
    """`TinyEncoder`: two layers of width 32 over hashed pieces, always the same weights. For tests only."""
    from transformers import BertConfig, BertModel

    config = config or EncoderConfig(name="tiny")
    shape = BertConfig(
        vocab_size=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=n_positions, hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformer = BertModel(shape, add_pooling_layer=False)
    specials = Specials(first=1, last=2, pad=0, unknown=3)
    window = window_of(config, n_positions)
    return Encoder(config, transformer, Tokenizer(hashed_tokenize(1024, 4), specials, longest_word(window)), window)
