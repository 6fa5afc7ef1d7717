"""Small networks of token ids as users write them, for ``test_zoo.py``: with their usual dropout, and 0 as padding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH = 30, 8


class Text(nn.Module):
    """Embeddings and what sub-classes do with them, up to one vector for each text."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.layer, self.fc = self.made(), nn.Linear(WIDTH, num_classes)

    def made(self) -> nn.Module:
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        return nn.TransformerEncoder(layer, 2)

    def pooled(self, ids: Tensor) -> Tensor:
        words = (ids != 0).unsqueeze(-1)
        states = self.layer(self.embedding(ids), src_key_padding_mask=ids == 0)
        return (states * words).sum(1) / words.sum(1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.fc(self.pooled(ids))


class Encoder(Text):
    """The encoder of PyTorch, of which padding is hidden."""


class GruText(Text):
    """The state at the last word, as of a packed sequence."""

    cell: type[nn.RNNBase] = nn.GRU

    def made(self) -> nn.Module:
        return self.cell(WIDTH, WIDTH, num_layers=2, dropout=0.2, batch_first=True)

    def pooled(self, ids: Tensor) -> Tensor:
        lengths, states = (ids != 0).sum(1), self.layer(self.embedding(ids))[0]
        return states[torch.arange(len(ids), device=ids.device), lengths - 1]


class LstmText(GruText):
    cell = nn.LSTM


class Packed(GruText):
    """With lengths, which are values."""

    def made(self) -> nn.Module:
        return self.cell(WIDTH, WIDTH, batch_first=True)

    def pooled(self, ids: Tensor) -> Tensor:
        lengths = (ids != 0).sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, True, enforce_sorted=False)
        return self.layer(packed)[1][-1]


class Functional(Text):
    """Dropout that is called as a function."""

    def made(self) -> nn.Module:
        return nn.Linear(WIDTH, WIDTH)

    def pooled(self, ids: Tensor) -> Tensor:
        drop = nn.functional.dropout
        return drop(torch.relu(self.layer(drop(self.embedding(ids), 0.1, self.training).mean(1))), 0.3, self.training)


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}


def bert(num_classes: int = 3) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(**SIZES, num_labels=num_classes))


class Masked(nn.Module):
    """A network that is told which words are padding."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.body = bert(num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.body(ids, attention_mask=(ids != 0).long())


def distilbert(num_classes: int = 3) -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    sizes = {"vocab_size": VOCABULARY, "dim": WIDTH, "n_layers": 2, "n_heads": 2, "hidden_dim": 16}
    return DistilBertForSequenceClassification(
        DistilBertConfig(**sizes, max_position_embeddings=16, num_labels=num_classes)
    )


def gpt2(num_classes: int = 3) -> nn.Module:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    sizes = {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 2, "n_head": 2, "n_positions": 16}
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    return GPT2ForSequenceClassification(GPT2Config(**sizes, **ends, num_labels=num_classes))


def llama(num_classes: int = 3) -> nn.Module:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    return LlamaForSequenceClassification(LlamaConfig(**SIZES, num_labels=num_classes, attention_dropout=0.1))


def lora(num_classes: int = 3) -> nn.Module:
    """Two factors for each projection of a pretrained network's queries and values, and a new last layer."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], lora_dropout=0.1)
    return get_peft_model(bert(num_classes), config)
