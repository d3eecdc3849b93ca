"""The characters of which the library `tokenizers` says something, for each of its kinds, as it says so itself:
unicode.py TABLES HASHES writes the runtime's tables (runtime/text/tokenizer/unicode_ranges.c) and what normal forms make of
all characters (unicode_forms.json). Needs tokenizers, unicodedata2, whose Unicode is newer than that of all libraries, and
Oniguruma 6.9.8, the oldest whose regular expressions the runtime takes."""
import bisect
import ctypes
import ctypes.util
import json
import sys

import tokenizers
import unicodedata2
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

ALL = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def bert(**flags):
    usual = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return norm.BertNormalizer(**{**usual, **flags})


def goes(normalizer):
    return [c for c in ALL if normalizer.normalize_str(f"a{chr(c)}b") == "ab"]


def cut(pre_tokenizer, parts):
    return [c for c in ALL if len(pre_tokenizer.pre_tokenize_str(f"a{chr(c)}b")) == parts]


def ranges(codes):
    made = []
    for c in codes:
        if made and made[-1][1] == c - 1:
            made[-1][1] = c
        else:
            made.append([c, c])
    return made


# Characters that are newer than the library's normal forms: these leave them as they are, and nothing moves past them.
NFC, NFD, NFKC, NFKD = norm.NFC(), norm.NFD(), norm.NFKC(), norm.NFKD()


def moves(c):
    """It is a mark to the library: one of class 1, or one of class 240, goes past it."""
    return NFD.normalize_str(chr(c) + "\u0334")[0] != chr(c) or NFD.normalize_str("\u0345" + chr(c))[0] != "\u0345"


new_marks = [c for c in ALL if unicodedata2.combining(chr(c)) and NFD.normalize_str(chr(c)) == chr(c) and not moves(c)]
new_forms = [c for c in ALL if unicodedata2.decomposition(chr(c)) and NFKD.normalize_str(chr(c)) == chr(c)]
firsts = set()
for c in new_forms:
    parts = unicodedata2.decomposition(chr(c)).split()
    if not parts[0].startswith("<") and len(parts) == 2:
        a, b = (int(p, 16) for p in parts)
        if NFC.normalize_str(chr(a) + chr(b)) == chr(a) + chr(b):
            firsts.add(a)
NEWER = sorted({*new_marks, *new_forms, *firsts})

LOWER = norm.Lowercase()
steps = []  # beyond Python's letters, which are those of Unicode 14
for c in ALL:
    small = LOWER.normalize_str(chr(c))
    if small == chr(c).lower():
        continue
    if steps and steps[-1][1] == c - 1 and steps[-1][2] == ord(small) - c:
        steps[-1][1] = c
    else:
        steps.append([c, c, ord(small) - c])

# ---- regular expressions -------------------------------------------------------------------------

# By these classes the library's Oniguruma has some characters elsewhere: a text is searched with others of as many bytes in
# their place, which are in all these classes what the library has.
CLASSES = [r"\p{%s}" % c for c in ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn Han Hiragana Katakana Hangul "
                                    "Latin Greek Cyrillic Arabic Hebrew Thai Devanagari Emoji").split()]
CLASSES += [r"\w", r"\d", r"\s"] + ["[[:%s:]]" % c for c in "alpha upper lower alnum graph print".split()]


def library_signatures():
    signatures = dict.fromkeys(ALL, 0)
    for bit, name in enumerate(CLASSES):
        split = pre.Split(tokenizers.Regex(name), "removed")
        for i in range(0, len(ALL), 5000):
            chunk = ALL[i:i + 5000]
            kept = {ord(c) for part, _ in split.pre_tokenize_str("".join(map(chr, chunk))) for c in part}
            for c in chunk:
                signatures[c] |= (c not in kept) << bit
    return signatures


def own_signatures():
    onig = ctypes.CDLL(ctypes.util.find_library("onig"))
    onig.onig_version.restype = ctypes.c_char_p
    assert onig.onig_version() == b"6.9.8", onig.onig_version()
    utf8, syntax = (ctypes.c_char.in_dll(onig, n) for n in ("OnigEncodingUTF8", "OnigSyntaxOniguruma"))
    encodings = (ctypes.c_void_p * 1)(ctypes.addressof(utf8))
    onig.onig_initialize(encodings, 1)

    class Region(ctypes.Structure):
        _fields_ = [("allocated", ctypes.c_int), ("count", ctypes.c_int), ("beg", ctypes.POINTER(ctypes.c_int)), ("end", ctypes.POINTER(ctypes.c_int))]

    onig.onig_region_new.restype = ctypes.POINTER(Region)
    region = onig.onig_region_new()
    text = "".join(map(chr, ALL)).encode()
    at = [0]
    for c in ALL:
        at.append(at[-1] + len(chr(c).encode()))
    buffer = ctypes.create_string_buffer(text, len(text) + 1)
    base, signatures = ctypes.addressof(buffer), dict.fromkeys(ALL, 0)
    pointer = ctypes.c_void_p
    for bit, name in enumerate(CLASSES):
        regex, rule = ctypes.c_void_p(), ("(?:%s)+" % name).encode()
        rule_buffer = ctypes.create_string_buffer(rule)
        begin = ctypes.addressof(rule_buffer)
        assert onig.onig_new(ctypes.byref(regex), pointer(begin), pointer(begin + len(rule)), 0, pointer(ctypes.addressof(utf8)),
                             pointer(ctypes.addressof(syntax)), None) == 0, name
        place = 0
        while onig.onig_search(regex, pointer(base), pointer(base + len(text)), pointer(base + place), pointer(base + len(text)), region, 0) >= 0:
            first, place = region.contents.beg[0], region.contents.end[0]
            for i in range(bisect.bisect_left(at, first), bisect.bisect_left(at, place)):
                signatures[ALL[i]] |= 1 << bit
    return signatures


THEIRS, OURS = library_signatures(), own_signatures()
# Where there is none, one of another script, then one that differs as an emoji or in [[:lower:]].
SCRIPTS = sum(1 << b for b, n in enumerate(CLASSES) if n[3:-1] in "Latin Greek Cyrillic Arabic Hebrew Thai Devanagari".split())
LEAST = SCRIPTS | sum(1 << b for b, n in enumerate(CLASSES) if n in (r"\p{Emoji}", "[[:lower:]]", "[[:upper:]]"))
MASKS = [0, SCRIPTS, LEAST]
known = {}  # of a mask, a signature and a number of bytes: a character
for c in reversed(ALL):
    if THEIRS[c] == OURS[c]:
        for mask in MASKS:
            known[mask, OURS[c] & ~mask, len(chr(c).encode())] = c
stand_ins, lost = [], []
for c in ALL:
    if THEIRS[c] == OURS[c]:
        continue
    keys = [(mask, THEIRS[c] & ~mask, len(chr(c).encode())) for mask in MASKS]
    other = next((known[key] for key in keys if key in known), None)
    if other is None:
        lost.append(hex(c))
    elif stand_ins and stand_ins[-1][1] == c - 1 and stand_ins[-1][2] == other:
        stand_ins[-1][1] = c
    else:
        stand_ins.append([c, c, other])
print(len(stand_ins), "ranges of stand-ins;", len(lost), "characters have none:", lost[:40])

TABLES = {
    "control": ("BertNormalizer drops these", ranges(goes(bert(clean_text=True)))),
    "nonspacing": ("BertNormalizer drops these as accents", ranges(goes(bert(strip_accents=True)))),
    "combining": ("StripAccents drops these", ranges(goes(norm.StripAccents()))),
    "punctuation": ("Punctuation and BertPreTokenizer", ranges(cut(pre.Punctuation(), 3))),
    "numeric": ("Digits", ranges(cut(pre.Digits(), 3))),
    "word": ("letters, marks, digits and what joins them, as \\w of Rust's regular expressions", ranges(cut(pre.Whitespace(), 1))),
    "newer": ("normal forms leave these, which are newer than the library's Unicode", ranges(NEWER)),
}
with open(sys.argv[1], "w") as out:
    out.write("// SPDX-License-Identifier: MIT\n// Kinds of characters, as the library `tokenizers` (%s) has them: first and last of each range.\n"
              "// tests/golden/tokenizer_kinds/unicode.py writes this file.\n#include \"text/tokenizer/unicode_ranges.h\"\n" % tokenizers.__version__)
    for name, (what, rows) in TABLES.items():
        out.write("\n// %s%s.\nconst struct code_range %s_ranges[] = {%s};\nconst int %s_count = %d;\n" % (
            what[0].upper(), what[1:], name, ", ".join("{0x%x, 0x%x}" % tuple(r) for r in rows), name, len(rows)))
    out.write("\n// Letters whose small ones are newer than utf8proc 2.8: the last number leads there.\nconst struct code_step lower_steps[] = {%s};\n"
              "const int lower_count = %d;\n" % (", ".join("{0x%x, 0x%x, %d}" % tuple(d) for d in steps), len(steps)))
    out.write("\n// Characters that Oniguruma 6.9.8 has in other classes, and one of as many bytes that is in theirs.\n"
              "const struct stand_in stand_ins[] = {%s};\nconst int stand_in_count = %d;\n" % (
                  ", ".join("{0x%x, 0x%x, 0x%x}" % tuple(r) for r in stand_ins), len(stand_ins)))


def fnv(form):
    """Of all characters, each alone and behind and ahead of marks, in the form."""
    h = 0xCBF29CE484222325
    for c in ALL:
        for text in (chr(c), f"a\u0301{chr(c)}\u0316\u0301"):
            for byte in form.normalize_str(text).encode():
                h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


with open(sys.argv[2], "w") as out:
    json.dump({"tokenizers": tokenizers.__version__, "NFC": fnv(NFC), "NFD": fnv(NFD), "NFKC": fnv(NFKC), "NFKD": fnv(NFKD), "Lowercase": fnv(LOWER),
               "Bert": fnv(norm.BertNormalizer()), "StripAccents": fnv(norm.Sequence([NFD, norm.StripAccents()])), "Nmt": fnv(norm.Nmt())}, out)
    out.write("\n")
print({name: len(rows) for name, (_, rows) in TABLES.items()}, [[hex(a), hex(b)] for a, b in ranges(NEWER)])
