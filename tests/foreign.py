"""Fixtures: models and tokenizers made elsewhere, or as others make them."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers

from export.formats.hugging_face import recover_merges
from gptcore.text.tokenizer import byte_to_unicode

# control characters, a sign, a byte inside of characters, a first one
MISSING = b"\x04\x1c~\xb8\xf1"
WORDS = (
    b"!!", b"ab", b"!!!!", b"aab", b"e\xcc", b"\xe6\x97", b"\xe6\x97\xa5", b"  ", b" \n", b"11"
)  # fmt: skip
N_INCOMPLETE = 256 - len(MISSING) + len(WORDS) + 1  # its vocabulary, with <|end|>


@pytest.fixture(scope="session")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer.json of GPT-2's kind that lacks MISSING."""
    folder = tmp_path_factory.mktemp("incomplete")
    singles = [bytes([byte]) for byte in range(256) if byte not in MISSING]
    ranks = {token: i for i, token in enumerate([*singles, *WORDS])}
    char_of = byte_to_unicode()

    def written(token: bytes) -> str:
        return "".join(char_of[byte] for byte in token)

    merges = [(written(a), written(b)) for a, b in recover_merges(ranks)]
    fast = Fast(models.BPE(vocab={written(t): i for t, i in ranks.items()}, merges=merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<|end|>"])
    fast.save(str(folder / "tokenizer.json"))
    return folder
