// Tokens from files: a text as a program's inputs of `tokens` have it.
//
// Several files are one text, in their order. It is read as a stream, or as windows.
//
// As a stream a batch has as many tokens as the program's largest input of tokens has elements, and
// begins where the one before it ended. Behind token length - s - 1 comes the first one again,
// where the furthest input begins s tokens further on: so that the targets end with the text.
//
// As windows the text is samples, as many tokens long as a row of the inputs: an order says which
// of them a batch has.
#ifndef TOKENS_H
#define TOKENS_H

#include <stdint.h>
#include "input_files.h"
#include "order.h"

struct token_file;
struct token_form;
struct index_use;

struct tokens {
  struct token_file *files;
  size_t nfiles;
  const struct token_form *form;
  uint64_t length;   // how many tokens there are
  uint64_t period;   // so many tokens follow one another, then the text begins again
  uint64_t window;   // tokens of a row, 0 where inputs differ in it
  double vocabulary; // tokens must be below it: the plan's, or what a use as indices takes
  const struct index_use *use; // that, or NULL
  unsigned char *read;         // room for STAGED_BYTES
  void *stage;
  char summary[256];
};

// The tokens of a batch; 0 where the program reads none.
long tokens_of_batch(void);

// Opens files of tokens: of the form that is told; else llm.c's where a name ends with .bin, flat
// where it ends with .uint16, .u16, .uint32 or .u32, and else a text of bytes. False, and why,
// where a file is no such file or all are too short for a batch. tokens_close in either case.
bool tokens_open(struct tokens *tokens, const struct input_files *files, const char *form,
                 struct failure *why);
void tokens_close(struct tokens *tokens);

// Looks at the tokens of the stream from number `first` to the one before `last`, and at what the
// inputs have of those behind, this rank at its share of them. False, and why, where one is not
// below the vocabulary.
bool tokens_check(const struct tokens *tokens, uint64_t first, uint64_t last, struct failure *why);

// Fills the inputs with the batch that begins at this token of the stream. False, and why.
bool tokens_fill(const struct tokens *tokens, uint64_t begin, struct failure *why);

// How many windows there are; 0 where the program's inputs have none in common.
uint64_t tokens_windows(const struct tokens *tokens);

// Fills the inputs with the windows of a stretch. What is missing of a batch are zeros, and labels
// that count for nothing. False, and why.
bool tokens_fill_windows(const struct tokens *tokens, const struct order *order,
                         const struct stretch *of, struct failure *why);

#endif
