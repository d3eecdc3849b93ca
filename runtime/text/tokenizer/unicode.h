// SPDX-License-Identifier: MIT
// Unicode for tokenizers: UTF-8, white space, normal forms, and regular expressions by Oniguruma.
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>
#include "base/failure.h"

// Bytes that grow; to be freed. `at` is NULL until something is added.
struct bytes {
  char *at;
  size_t count, room;
  bool failed; // out of memory: some were not added
};

void add_bytes(struct bytes *b, const char *from, size_t count);
void free_bytes(struct bytes *b);

// The number of bytes of the character at `at`, where `left` bytes remain: 1 to 4; or of a maximal
// part of one, negative. `code`: the character.
int utf8_at(const char *at, size_t left, uint32_t *code);

// Adds a character.
void add_code(struct bytes *b, uint32_t code);

// Adds a text, with U+FFFD for each maximal part of it that is no character.
void add_lossy(struct bytes *b, const char *text, size_t count);

// White space, as Unicode says; a letter, a mark, a digit or what joins them, as \w of Rust's
// library regex; a number of any kind; a mark; a mark that takes no room; punctuation; a control
// or format character.
bool is_space(uint32_t code);
bool is_of_word(uint32_t code);
bool is_numeric(uint32_t code);
bool is_mark(uint32_t code);
bool is_nonspacing(uint32_t code);
bool is_punctuation(uint32_t code);
bool is_control(uint32_t code);

// As str of Python asks: what repr() prints as it is; what has a case; what
// isalpha() is true of.
bool is_printable(uint32_t code);
bool is_cased(uint32_t code);
bool is_alphabetic(uint32_t code);

enum normal_form { NFC, NFD, NFKC, NFKD };

// Adds the text, which is UTF-8, in a normal form. False, and why.
bool add_normalized(struct bytes *b, const char *text, size_t count, enum normal_form form,
                    struct failure *why);

// Adds the text, which is UTF-8, with each letter in lower case.
void add_lowercase(struct bytes *b, const char *text, size_t count);

// Adds the text with each letter in upper case, or in lower case.
void add_cased(struct bytes *b, const char *text, size_t count, bool upper);

// Adds the characters that stand in tokens for these bytes, GPT-2's; the byte of one, or -1.
void add_letters_of_bytes(struct bytes *b, const char *bytes, size_t count);
int byte_of_letter(uint32_t letter);

// The place after a match from `first` to `end`, from which the next one is searched: at least a
// character on.
size_t next_place(const struct bytes *text, size_t end, size_t first);

// A regular expression, of UTF-8.
struct pattern;
struct pattern *pattern_open(const char *given, size_t length, bool is_literal,
                             struct failure *why);
void pattern_close(struct pattern *p);

// A text to search, which must stay.
struct searched;
struct searched *search_begin(const char *text, size_t count, struct failure *why);
void search_end(struct searched *s);

// The first match from `from` on: 1, and its bounds; 0: none; -1, and why: it takes too long.
int search_next(struct searched *s, const struct pattern *p, size_t from, size_t *first,
                size_t *end, struct failure *why);

#endif
