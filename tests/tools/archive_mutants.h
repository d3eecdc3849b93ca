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

#endif
