// SPDX-License-Identifier: MIT
// The steps of a tokenizer.json: its normalizer, pre-tokenizer and decoder are each one step, or a
// sequence of them.
#ifndef TEXT_STEPS_H
#define TEXT_STEPS_H

#include <jansson.h>
#include "text/tokenizer/charsmap.h"

enum behavior { ISOLATED, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

struct step {
  enum step_kind {
    PREPEND,     // text before
    REPLACE,     // matches of the pattern by the text
    NORMAL_FORM, // of `form`
    LOWERCASE,
    CHARACTERS,    // each becomes what `becomes` says
    APART,         // blanks around characters that are `is`
    RULES,         // of sentencepiece
    STRIP,         // of normalizers: white space at both ends; of decoders: up to `first` and
                   // `last` times the text
    SPLIT,         // at the pattern's matches, or at characters that are `is`
    BYTES,         // each byte becomes a character of a token, or back
    DIGITS,        // apart: runs of them, or each
    METASPACE,     // blanks become the text
    WHITESPACE,    // apart, and gone
    WORDS,         // runs of letters and the like, and of other characters, without white space
    LENGTHS,       // so many characters each: `first`
    END_OF_WORD,   // the text in a token becomes a blank; in the last one nothing
    BYTE_FALLBACK, // tokens such as <0x0A> become their bytes
    WORD_PIECES,   // blanks before tokens that do not begin with the text, which goes
    CTC,           // tokens that follow their like go, and so does the text; `other` is a blank
    FUSE           // all tokens are one
  } kind;
  struct bytes text, other;
  struct pattern *pattern;
  bool (*is)(uint32_t code);
  uint32_t (*becomes)(uint32_t code); // NO_CODE: the character goes
  struct charsmap *rules;
  enum normal_form form;
  enum behavior behavior;
  bool inverted;                          // SPLIT: the text that does not match counts as a match
  bool adds_blank;                        // BYTES: before a text without one
  bool each;                              // DIGITS
  bool splits;                            // METASPACE: into words
  bool tidies;                            // WORD_PIECES, CTC: no blanks before punctuation
  enum { ALWAYS, NEVER, FIRST } prepends; // METASPACE
  int first, last;
};
enum { NO_CODE = 0x110000 };

struct steps {
  struct step *at;
  size_t count;
  bool given; // the file has it, be it without steps
};

// Reads the member `name` of a tokenizer.json, which may be null. False, and why.
bool steps_read(struct steps *s, const json_t *file, const char *name, const char *path,
                struct failure *why);
void steps_free(struct steps *s);

// A text that is cut in words, or the texts of tokens, one after the other.
struct word {
  size_t first, end; // in the text
};
struct words {
  struct bytes text;
  struct word *at;
  size_t count, room;
};
void words_free(struct words *w);
// Adds a word that is in the text already; adds a text as a word. In both a failure is in
// text.failed.
void add_word(struct words *w, size_t first, size_t end);
void add_text_as_word(struct words *w, const char *text, size_t count);

// Normalizes a text. begins: false if its first character goes. False, and why.
bool steps_normalize(const struct steps *s, struct bytes *text, bool *begins, struct failure *why);

// Cuts the words further; starts: the first of them begins the whole text. False, and why.
bool steps_cut(const struct steps *s, struct words *words, bool starts, struct failure *why);

// Adds the text of tokens, which are changed. False, and why.
bool steps_decode(const struct steps *s, struct words *tokens, struct bytes *text,
                  struct failure *why);

// Adds the bytes that a token has in a text, between other tokens: they may be a part of a
// character. False, and why.
bool steps_decode_token(const struct steps *s, const char *token, size_t count, struct bytes *bytes,
                        struct failure *why);

#endif
