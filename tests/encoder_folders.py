"""Small random encoders of each family as Hugging Face folders: transformer, weights, and a genuine tokenizer."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

FAMILIES = ("bert", "roberta", "electra", "distilbert", "mpnet", "modernbert")
BYTE_LEVEL = ("roberta", "modernbert")
WINDOW = 40  # pieces that each reads at once
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
BRACKETS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ANGLES = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}  # in RoBERTa's order
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "b"), ("e", "r")]


def make_folder(family: str, folder: Path, **settings: Any) -> Path:
    """`settings` are of the transformer's config."""
    specials = BRACKETS if family in ("bert", "electra", "distilbert") else ANGLES
    backend = byte_level(specials) if family in BYTE_LEVEL else word_pieces(specials)
    roles: Any = {f"{role}_token": piece for role, piece in specials.items()}
    PreTrainedTokenizerFast(tokenizer_object=backend, **roles).save_pretrained(folder)
    quietly_saved(transformer(family, backend, specials, settings), folder)
    return folder


def transformer(family: str, backend: Tokenizer, specials: dict[str, str], settings: dict[str, Any]) -> Any:
    ids = {f"{role}_token_id": backend.token_to_id(specials[role]) for role in ("pad", "cls", "sep")}
    ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    shape = {**SHAPE, "vocab_size": backend.get_vocab_size(), "max_position_embeddings": WINDOW, **ids}
    name = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra", "distilbert": "DistilBert",
            "mpnet": "MPNet", "modernbert": "ModernBert"}[family]  # fmt: skip
    if family in ("roberta", "mpnet"):
        shape["max_position_embeddings"] = WINDOW + 2  # as published: 514 for 512
    if family == "electra":
        shape["embedding_size"] = 16
    if family == "distilbert":
        shape = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48, "vocab_size": shape["vocab_size"],
                 "max_position_embeddings": WINDOW, "pad_token_id": ids["pad_token_id"]}  # fmt: skip
    config = getattr(transformers, f"{name}Config")(**{"initializer_range": 0.3, **shape, **settings})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(transformers, f"{name}Model")(config)


def quietly_saved(model: Any, folder: Path) -> None:
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    transformers.utils.logging.enable_progress_bar()


def vocabulary(specials: dict[str, str]) -> list[str]:
    inner = [f"##{letter}" for letter in ascii_lowercase]
    return [*specials.values(), *ascii_lowercase, *inner, ".", ",", "[", "]", "the", "ber", "##gen"]


def word_pieces(specials: dict[str, str]) -> Tokenizer:
    """As BERT's, uncased; knows letters and a few words."""
    vocab = {piece: i for i, piece in enumerate(vocabulary(specials))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=specials["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def byte_level(specials: dict[str, str]) -> Tokenizer:
    """As GPT-2's, cased; knows all bytes and a few merges."""
    pieces = [*specials.values(), *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, MERGES)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer
