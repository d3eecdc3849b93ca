// The tokens that a program trains on, from a file; next_batch (program.h) hands them out.
//
// A batch has as many tokens as the program's largest input of tokens has elements, and begins
// where the one before it ended. Behind token length - s - 1 of the file comes its first one again,
// where the furthest input begins s tokens further on: so that the targets end with the file.
#ifndef DATA_H
#define DATA_H

#include <stdint.h>
#include "failure.h"

// Does the program read tokens, and is the file one of tokens? `form` is what --tokens says, or
// NULL; without it a file whose name ends with .safetensors holds whole inputs.
bool data_is_tokens(const char *path, const char *form);

// Opens a file of tokens: of the form that is told; else llm.c's where the name ends with .bin,
// flat where it ends with .uint16, .u16, .uint32 or .u32, and else a text of bytes. False, and why,
// where the file is no such file or is too short for a batch.
bool data_open(const char *path, const char *form, struct failure *why);

// Looks at the tokens of the batches first .. last - 1, this rank at its share of them. False, and
// why, where one is not below the vocabulary.
bool data_check(long first, long last, struct failure *why);

// Batch number `batch`, counted from 0, begins behind so many tokens of the data, wherever the file
// has begun again; data_go_on says so of one, and the others lie before and behind it. Without it
// the batch 0 begins behind none.
uint64_t data_position(long batch);
void data_go_on(long batch, uint64_t tokens);

// The tokens of a batch; 0 where the program reads none.
long data_batch_tokens(void);

// What is open, for people to read: "text.txt, 65,536 bytes".
const char *data_summary(void);

void data_close(void);

#endif
