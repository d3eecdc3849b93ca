// SPDX-License-Identifier: MIT
// The framing of HTTP requests, as RFC 9112 has it, and no other way: requests that a proxy in
// front might read otherwise are refused, so that no request can hide in another one's body.
#ifndef TEXT_HEAD_H
#define TEXT_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "text/tokenizer/unicode.h"

enum { MOST_HEAD = 16 << 10, MOST_LINE_OF_CHUNKS = 1024 };

// Why a request is refused.
struct refusal {
  unsigned status; // 0: it is not
  const char *why;
};

// A request line and its header fields. The texts are parts of head_read's text.
struct head {
  const char *method;
  char *path;                               // decoded, without a query
  const char *authorization, *content_type; // NULL: there is none
  bool is_1_0, closes;                      // the connection, after the answer
  bool has_body, is_chunked, waits;         // for 100 Continue
  uint64_t length;                          // of a body that is not in chunks
};

// The length of the head that begins `text`, with its empty line; 0: it has not come whole.
size_t head_length(const char *text, size_t count);

// Whether this can't be the beginning of a head: it has characters that no line has.
bool head_is_broken(const char *text, size_t count);

// Reads a whole head, or an empty line or two before one.
struct refusal head_read(struct head *head, char *text, size_t count);

// The state of reading a body in chunks; zeroed at first.
struct chunks {
  int stage;
  bool ended;
  bool digits;          // of the size
  uint64_t left;        // of the chunk
  size_t line, trailer; // bytes of the line, and of the trailer
};

// Takes some bytes, at most up to the body's end: the number taken. `some` gets the bytes of the
// body among them, one after the other in place.
size_t chunks_take(struct chunks *c, char *text, size_t count, size_t *some,
                   struct refusal *refusal);

#endif
