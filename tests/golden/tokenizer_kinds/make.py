"""Small tokenizers, each with a property of released ones, and what the library `tokenizers` makes of texts:
make.py FOLDER writes NAME.json, and NAME.jsonl with a line for each text."""
import base64, json, os, sys
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

# ---- models other than BPE -----------------------------------------------------------------------

# sentencepiece's rules, of a few characters (`spm_train --normalization_rule_tsv`): the ligature fi, wide A, e with an accent
# and its mark alone, a letter that becomes another one, a blank without width, a number in a circle, ss, an end of line.
RULES = ("AAQAAAAwAAANJAAACgUAAAEAAIALAACAig0AABUAAIANAACAzAACAIENAAAYAACAzDwCAIjgAQB5DQAACQAAgJ99AAASAACAAwAAgIENAACLHQAAAAAAgKANAAAFAACAgDgCAA8AAICA"
         "aQAAgQkAAKEdAAAHAACAHAAAAB8AAAAeAAAAgOACACAAAACs5AIAIgAAACUAAAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAALQAAACwAAAAvAAAALgAAADEAAACREAIAvCACADIA"
         "AAA1AAAANAAAADcAAAA2AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAAQAAAAEMAAABCAAAARQAAAEQAAABHAAAARgAAAEkAAABIAAAASwAAAEoAAABNAAAAQSUB"
         "AEIlAQBOAAAAUQAAAFAAAABTAAAAUgAAAFUAAABUAAAAVwAAAFYAAABZAAAAWAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAAYwAAAGIAAABlAAAAZAAAAGcAAABmAAAA"
         "aQAAAGW0AgBrAAAAagAAAG0AAABhqQEAbwAAAG4AAABxAAAAcAAAAHMAAAByAAAAeMwCAHQAAAB3AAAAdgAAAHkAAAB4AAAAewAAAHoAAAB9AAAAfAAAAH8AAAB+AAAAgQAAAIAAAACD"
         "AAAAggAAAIUAAACEAAAAhwAAAIYAAACJAAAAiAAAAIsAAACKAAAAjQAAAIwAAACPAAAAjgAAAJEAAACQAAAAkwAAAJIAAACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0A"
         "AACcAAAAnwAAAJ4AAAChAAAAoAAAAKMAAACiAAAApQAAAKQAAACnAAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAACzAAAAsgAAALUAAAC0AAAAtwAA"
         "ALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/AAAAvgAAAMxMAQDAAAAAwwAAAMIAAADFAAAAxAAAAMcAAADGAAAAzBwBAMgAAADLAAAAygAAAM0AAADMAAAAzwAAAMN8AQDRAAAA"
         "0AAAANMAAADSAAAA1QAAANQAAADXAAAA1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA4QAAAOAAAADjAAAA77QBAOUAAADkAAAA5wAAAOYAAADpAAAA6AAAAOsAAADq"
         "AAAA7QAAAOwAAADiOAEA4+ABAPEAAADwAAAA8wAAAPIAAAD1AAAA9AAAAPcAAAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/wAAAP4AAAAAIAAnADEAQQBRAGEAYgBmaQBzcwDD"
         "pQDDqQA=")
BYTES = [("<0x%02X>" % i, -5.0) for i in range(256)]

def unigram(norm, pre, dec, byte_fallback=False, corpus=CORPUS, vocab=400, unk=True):
    t = Tokenizer(models.Unigram())
    t.normalizer, t.pre_tokenizer = norm, pre
    t.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=vocab, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    d = json.loads(t.to_str())
    pieces = d["model"]["vocab"] + (BYTES if byte_fallback else [])
    d["model"].update(vocab=[[p, round(s, 6)] for p, s in pieces], byte_fallback=byte_fallback, unk_id=2 if unk else None)
    t = Tokenizer.from_str(json.dumps(d))
    t.decoder = dec
    return t

@case
def unigram_t5():
    rules = normalizers.Sequence([normalizers.Precompiled(base64.b64decode(RULES)), normalizers.Strip(False, True), normalizers.Replace(Regex(" {2,}"), "▁")])
    meta = dict(replacement="▁", prepend_scheme="always")
    t = unigram(rules, pre_tokenizers.Metaspace(**meta), decoders.Metaspace(**meta))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return t
@case
def unigram_bytes(): # as Gemma's
    return unigram(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                   decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]), byte_fallback=True)
@case
def unigram_words(): # as XLM-RoBERTa's
    t = unigram(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
                pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first", split=False)]), decoders.Metaspace())
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    return t

def wordpiece(norm, pre=pre_tokenizers.BertPreTokenizer(), cleanup=True, prefix="##", **kw):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", **kw))
    t.normalizer, t.pre_tokenizer = norm, pre
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=420, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False,
                                                            continuing_subword_prefix=prefix))
    t.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
    return t

@case
def bert_uncased():
    t = wordpiece(normalizers.BertNormalizer())
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t
@case
def bert_cased():
    t = wordpiece(normalizers.BertNormalizer(lowercase=False), cleanup=False)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t
@case
def bert_accents(): return wordpiece(normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=True))
@case
def wordpiece_short(): return wordpiece(normalizers.NFC(), pre_tokenizers.WhitespaceSplit(), max_input_chars_per_word=6)
@case
def word_level():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    t.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=90, special_tokens=["[UNK]", "[CLS]"], show_progress=False))
    return t
@case
def letters_ctc(): # as Wav2Vec 2's
    vocab = {t: i for i, t in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz'.!?, n"])}
    t = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.FixedLength(1)
    t.decoder = decoders.CTC()
    return t
@case
def delimited(): return bpe(pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.FixedLength(4)]), unk="<unk>", fuse_unk=True)
@case
def prefixed_bytes():
    t = bpe(pre_tokenizers.WhitespaceSplit(), unk="<unk>", byte_fallback=True, continuing_subword_prefix="##")
    d = json.loads(t.to_str())
    del d["model"]["vocab"]["<0xE6>"] # of some characters not all bytes are there
    t = Tokenizer.from_str(json.dumps(d))
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.WordPiece(prefix="##", cleanup=True)])
    return t

def replaced_first(): # the text begins with what a normalizer has put there: no mark before it
    return bpe(pre_tokenizers.Metaspace(prepend_scheme="first"), normalizers.Replace("in", "IN"), unk="<unk>")
def blanks_of_two(): # an added token takes blanks that have a token of their own
    t = of_bytes()
    t.add_tokens([AddedToken("<a>", rstrip=True, normalized=False), AddedToken("  ", normalized=False), AddedToken("\n", lstrip=True, rstrip=True, normalized=False)])
    return t
for make in (replaced_first, blanks_of_two): CASES[make.__name__] = make

for name, make in CASES.items():
    path = os.path.join(sys.argv[1], name + ".json")
    make().save(path, pretty=False)
    t = Tokenizer.from_file(path)
    with open(path + "l", "w") as f:
        for text in TEXTS:
            ids = t.encode(text, add_special_tokens=False).ids
            f.write(json.dumps({"text": text, "ids": ids, "ids_special": t.encode(text).ids, "decoded": t.decode(ids, skip_special_tokens=False)}) + "\n")
print(tokenizers.__version__, len(CASES))
