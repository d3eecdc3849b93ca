"""Small tokenizers, each with a property of released ones, and what the library `tokenizers` makes of texts:
make.py FOLDER writes NAME.json, and NAME.jsonl with a line for each text."""
import json, os, sys
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = ["the house of the river there is a boat and in the boat the cat sleeps 123 4567 89 times", "It isn't 1/2 of 3.5; I'm sure they'll say we've won.",
          "Grüße aus Köln, où est le café? naïve señor", "東京は日本の首都です。 数字 １２３", "Привет, мир!", "def f(x):\n    return x ** 2\n\n\tif y == 3:\r\n        pass",
          "HelloWorld camelCase XMLHttpRequest A1B2", "🙂 ❤️ ok"] * 10
TEXTS = ["", " ", "\n\n", "in the house", "  the  cat ", "a\tb\r\n c", "x²³ ½ of ２３ and ٣٤٥ Ⅻ ① 12a 3.14 1,000", "e\u0301cole \u00e9cole a\u0300\u0301b", "ﬁne Ａｂｃ", "👨‍👩‍👧 ❤️🙂",
         "\u200bzero\u200bwidth \u00a0nbsp\u3000wide\u0085next\u2028line", "<s>uns", "uns<s> </s>", "don't DON'T they'LL \u017f", "HelloWorld XMLHttp iPhone ǅungla", "...!!!??? foo(bar)[baz]|{qux}", "東京は日本。数字１２３ 한글",
         "İstanbul ISTANBUL ß ẞ Σίσυφος ΣΊΣΥΦΟΣ", "▁the▁cat the▁cat", "MASK [MASK] [MASK]a b[MASK] [mask]", "<a>  <b>foo<a>bar <a> ", "word wordy sword “word” word…", "<0x41><0x0A>", "snake_case __init__ $1 + 2 = 3 ~ ^ `x`",
         "see http://a.b/c?d=e#g\nend\n", "hello abc123def straße STRASSE k K"]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

def bpe(pre=None, norm=None, alphabet=None, vocab=330, specials=("<unk>", "<s>", "</s>"), byte_fallback=False, unk=None, **kw):
    t = Tokenizer(models.BPE(byte_fallback=byte_fallback, unk_token=unk, **kw))
    if norm is not None: t.normalizer = norm
    if pre is not None: t.pre_tokenizer = pre
    bytes_ = ["<0x%02X>" % i for i in range(256)] if byte_fallback else []
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=vocab + len(bytes_), special_tokens=list(specials) + bytes_, initial_alphabet=alphabet or [], show_progress=False))
    if byte_fallback: # bytes are tokens of the vocabulary
        d = json.loads(t.to_str())
        d["added_tokens"] = [a for a in d["added_tokens"] if not a["content"].startswith("<0x")]
        t = Tokenizer.from_str(json.dumps(d))
    return t

def level(**kw): return pre_tokenizers.ByteLevel(add_prefix_space=False, **kw)
def by(regex, behavior="isolated", invert=False):
    t = bpe(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), behavior, invert), level(use_regex=False)]), alphabet=ALPHABET)
    t.decoder = decoders.ByteLevel()
    return t
def of_bytes(*pre, **kw):
    t = bpe(pre_tokenizers.Sequence([*pre, level()]), alphabet=ALPHABET, **kw)
    t.decoder = decoders.ByteLevel()
    return t

CASES = {f"regex_{n}": (lambda r=r: by(r)) for n, r in {
    "intersection": r"[\p{L}&&[^\p{Han}]]+", "kimi": KIMI, "nested": r"[a[0-9]]+|x", "nested_negated": r" ?[^(\s|[.,!?])]+", "hexadecimal": r"\h+", "vertical": r"\v+",
    "lines": r"^\s+|\s+$|\S+$", "interval": r"\p{L}{1,3}+|\d{,3}", "words": r"\w+|[^\w\s]+", "posix": r"[[:punct:]]+|[[:alpha:]]+", "caseless": r"(?i)straße|k|ǆ", "behind": r"(?<=e)\p{L}",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"}.items()}
def case(f): CASES[f.__name__] = f
@case
def digits_each(): return of_bytes(pre_tokenizers.Digits(True))
@case
def digits_runs(): return of_bytes(pre_tokenizers.Digits(False))
@case
def punctuation(): return of_bytes(pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(False))
@case
def punctuation_merged(): return bpe(pre_tokenizers.Punctuation("merged_with_previous"), unk="<unk>")
@case
def whitespace(): return bpe(pre_tokenizers.Whitespace(), unk="<unk>")
@case
def byte_level_normalizer():
    t = bpe(None, normalizers.ByteLevel(), alphabet=ALPHABET)
    t.decoder = decoders.ByteLevel()
    return t
@case
def byte_level_normalizer_split():
    t = bpe(pre_tokenizers.Split("Ġ", "merged_with_next"), normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]), alphabet=ALPHABET)
    t.decoder = decoders.ByteLevel()
    return t
@case
def lowercase_added():
    t = bpe(level(), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), alphabet=ALPHABET)
    t.decoder = decoders.ByteLevel()
    t.add_tokens([AddedToken("[MASK]", normalized=True), AddedToken("ﬁne", normalized=True), AddedToken("Hello", normalized=False)])
    return t
@case
def prepended_added():
    t = bpe(None, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), byte_fallback=True, unk="<unk>", fuse_unk=True)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    d = json.loads(t.to_str())
    for a in d["added_tokens"]: a["normalized"] = True
    t = Tokenizer.from_str(json.dumps(d))
    t.add_tokens([AddedToken("<a>", normalized=True), AddedToken("<b>", normalized=True, special=True)])
    return t
@case
def single_words():
    t = of_bytes()
    t.add_tokens([AddedToken("word", single_word=True), AddedToken("the", single_word=True, lstrip=True), AddedToken("東京", single_word=True)])
    return t
@case
def accents(): return bpe(pre_tokenizers.WhitespaceSplit(), normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), unk="<unk>")
@case
def end_of_word():
    t = bpe(pre_tokenizers.WhitespaceSplit(), unk="<unk>", end_of_word_suffix="</w>")
    t.decoder = decoders.BPEDecoder("</w>")
    return t
@case
def end_of_word_bytes(): # CLIP
    t = Tokenizer(models.BPE(unk_token="</s>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", True), level(use_regex=False)])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "</s>"], initial_alphabet=ALPHABET, end_of_word_suffix="</w>", show_progress=False))
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=False, add_prefix_space=False)
    return t
@case
def roberta():
    t = of_bytes()
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return t

for name, make in CASES.items():
    path = os.path.join(sys.argv[1], name + ".json")
    make().save(path, pretty=False)
    t = Tokenizer.from_file(path)
    with open(path + "l", "w") as f:
        for text in TEXTS:
            ids = t.encode(text, add_special_tokens=False).ids
            f.write(json.dumps({"text": text, "ids": ids, "ids_special": t.encode(text).ids, "decoded": t.decode(ids, skip_special_tokens=False)}) + "\n")
print(tokenizers.__version__, len(CASES))
