/* archive_mutants.h: mutants of an archive of torch.export. A mutant is a function of the archive
   and of its number: bytes are others, the ZIP's directory lies, or the JSON texts in it are
   changed, in a ZIP that is right otherwise. */
#ifndef ARCHIVE_MUTANTS_H
#define ARCHIVE_MUTANTS_H

#include <stddef.h>
#include <stdint.h>

/* Reads the archive; ends the program with a message if it cannot. */
void open_archive(const char *path);

/* Writes mutant `number` to the path. */
void write_mutant(uint64_t number, const char *path);

/* Runs the body in a process of its own for each of the mutants first .. first + count - 1, which
   are written to the path in turn. It must end by itself within a minute with status 0, or with
   status 1 and one line of text, on standard error, that has the word "error" in it unless `plain`.
   Returns how many do not; prints their numbers, and what they wrote. */
int run_mutants(const char *path, uint64_t first, uint64_t count, void (*body)(const char *path));

#endif
