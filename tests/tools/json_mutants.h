/* json_mutants.h: random changes of files, and runs of mutants. A mutant is a function of its
   number. */
#ifndef JSON_MUTANTS_H
#define JSON_MUTANTS_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_TEXT = 1 << 23 };

/* All that is drawn from here on is that of this mutant. */
void begin_mutant(uint64_t number);

/* A random number below n; 0 if n is 0. */
size_t below(size_t n);

/* Changes one to three values of a JSON text, which has room for MOST_TEXT bytes: into another one
   of the text, into numbers, texts and other values that readers may not expect, of which `own` are
   the caller's, or into deep brackets; some are gone, or there several times. */
void change_json(char *text, size_t *count, const char *const *own, size_t nown);

/* Changes some bytes, half of them among the last `end`; perhaps the bytes end earlier. */
void change_bytes(char *bytes, size_t *count, size_t end);

/* Reads a file, writes one; both end the program with a message if they cannot. */
size_t read_whole(const char *path, char *to, size_t most);
void write_whole(const char *path, const void *bytes, size_t count);

/* Runs the body in a process of its own for each of the mutants first .. first + count - 1, which
   are written to the path in turn. It must end by itself within a minute of the processor with
   status 0, or with status 1 and one line of text, on standard error, that has ": " and none of
   Lua's own words. Returns how many do not; prints their numbers, and what they wrote. */
int run_mutants(const char *path, uint64_t first, uint64_t count,
                void (*write_mutant)(uint64_t number, const char *path),
                void (*body)(const char *path));

#endif
