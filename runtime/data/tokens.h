// SPDX-License-Identifier: MIT
// Tokens from files: a text, for a program's inputs of `tokens`.
//
// Several files are one text, in their order. It is read as a stream, or as windows.
//
// As a stream, a batch has as many tokens as the program's largest input of tokens has elements,
// and begins at the end of the previous batch. If the furthest input begins s tokens further on,
// the token after number length - s - 1 is the first one again: so the targets end with the text.
//
// As windows, the text is samples of as many tokens as a row of the inputs; an order selects the
// samples of a batch.
#ifndef TOKENS_H
#define TOKENS_H

#include <stdint.h>
#include "data/input_files.h"
#include "data/shuffle.h"

struct token_file;
struct token_form;
struct index_use;

struct tokens {
  struct token_file *files;
  size_t nfiles;
  const struct token_form *form;
  uint64_t length;             // the number of tokens
  uint64_t period;             // tokens before the text begins again
  uint64_t window;             // tokens of a row, 0 if inputs differ in it
  double vocabulary;           // tokens are below it: the plan's, or that of a use as indices
  const struct index_use *use; // that use, or NULL
  unsigned char *read;         // room for STAGED_BYTES
  void *stage;
  char summary[256];
};

// The tokens of a batch; 0 if the program reads none.
long tokens_of_batch(void);

// Opens files of tokens. The form is `form`, if given; else llm.c's for names that end with .bin,
// flat for .uint16, .u16, .uint32 and .u32, and else a text of bytes. False, and why, if a file has
// not this form, or all are too short for a batch. Call tokens_close in either case.
bool tokens_open(struct tokens *tokens, const struct input_files *files, const char *form,
                 struct failure *why);
void tokens_close(struct tokens *tokens);

// Whether the bytes of the files are the tokens.
bool tokens_are_bytes(const struct tokens *tokens);

// Checks this rank's share of the tokens first .. last - 1 of the stream, and of the later ones
// that the inputs read with them. False, and why, if one is not below the vocabulary.
bool tokens_check(const struct tokens *tokens, uint64_t first, uint64_t last, struct failure *why);

// Fills the inputs with the batch that begins at this token of the stream. False, and why.
bool tokens_fill(const struct tokens *tokens, uint64_t begin, struct failure *why);

// The number of windows; 0 if the rows of the program's inputs differ in length.
uint64_t tokens_windows(const struct tokens *tokens);

// Fills the inputs with the windows of a range of samples. Pads an incomplete batch with zeros and
// ignored labels. False, and why.
bool tokens_fill_windows(const struct tokens *tokens, const struct order *order,
                         const struct sample_range *of, struct failure *why);

#endif
