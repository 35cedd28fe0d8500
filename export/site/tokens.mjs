// Text to token ids and back. Special tokens are never read from a text.

export class Tokens {
  // `Tokenizer` is that of @huggingface/tokenizers. `content` and `config`: tokenizer.json and
  // tokenizer_config.json; `special`: ids by name.
  constructor(Tokenizer, content, config, special) {
    // Without special tokens the tokenizer encodes every text as ordinary text. The other added tokens
    // are such text.
    const added = content.added_tokens.filter((token) => !token.special);
    this.tokenizer = new Tokenizer({ ...content, added_tokens: added }, config);
    this.added = new Map(added.map((token) => [token.id, new TextEncoder().encode(token.content)]));
    this.special = special;
    this.names = new Map(Object.entries(special).map(([name, id]) => [id, name]));
    const words = Object.entries(content.model.vocab);
    this.words = new Map(words.map(([word, id]) => [id, word]));
    this.leaveOutMissing(content.model.vocab);
  }

  // A byte that a vocabulary lacks is left out of its piece before tokens merge, as the library of that
  // name does in Python; the one here would merge nothing across it.
  leaveOutMissing(vocabulary) {
    const missing = new Set([...BYTES.keys()].filter((character) => !Object.hasOwn(vocabulary, character)));
    if (!missing.size) return;
    const { model } = this.tokenizer;
    const merge = model.bpe.bind(model);
    model.bpe = (piece) => merge([...piece].filter((character) => !missing.has(character)).join(""));
  }

  encode(text) {
    return text ? this.tokenizer.encode(text, { add_special_tokens: false }).ids : [];
  }

  bytes(id) {
    if (this.added.has(id)) return this.added.get(id);
    const word = this.words.get(id) ?? "";
    return Uint8Array.from(word, (character) => BYTES.get(character));
  }

  // Returns a function that gives the text that each id adds; a character that is split over several
  // tokens comes once it is complete. Called without an id, it gives what is left.
  stream() {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return (id) => (id === undefined ? decoder.decode() : decoder.decode(this.bytes(id), { stream: true }));
  }

  // Returns a token's text, or the name of a special one.
  name(id) {
    return this.names.get(id) ?? new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.bytes(id));
  }
}

// The byte for each character of a byte-level vocabulary: GPT-2's table (openai/gpt-2, encoder.py).
// Bytes that are visible characters stand for themselves, the others for those from 256 on.
const BYTES = new Map();
for (let byte = 0, next = 256; byte < 256; byte += 1) {
  const isVisible = (33 <= byte && byte <= 126) || (161 <= byte && byte <= 172) || 174 <= byte;
  BYTES.set(String.fromCodePoint(isVisible ? byte : next), byte);
  if (!isVisible) next += 1;
}

// What Python's strip() keeps: trim() would also keep U+001C to U+001F and U+0085, but not U+FEFF.
const INK = "(?:[^\\s\\x1c-\\x1f\\x85]|\\ufeff)";
const STRIPPED = new RegExp(`${INK}(?:[^]*${INK})?`);

// Returns a message without the white space around it, for a format that trims.
export const stripped = (text) => text.match(STRIPPED)?.[0] ?? "";
