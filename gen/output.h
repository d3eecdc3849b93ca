/* output.h: what write.c, which knows the files of a program, and put.c, which puts them in their
   folder, share. Names are those within the folder: "step.c", "runtime/main.c". */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct file {
  const char *name, *contents;
  size_t size;
  bool executable;
};

/* A file that is to be another one, or that goes. */
struct change {
  const char *name;
  const struct file *to; /* NULL: it goes */
  bool is_there;         /* something has the name now */
};

/* The folder's own list of the files that tpgen wrote: as it is, NULL where there is none; while
   files of two programs may lie there; and in the end. */
#define FILE_LIST "files.txt"
struct lists {
  const struct file *before, *meanwhile, *then;
};

/* Opens options.out; makes, where `make` says so, what of it is not there, and keeps every other
   tpgen out of it. False where there is none. Other errors end tpgen. */
bool open_output(bool make);
/* The file of that name: what it is, without following a link; false where there is none. */
bool look_at_output(const char *name, struct stat *about);
/* Opens it for reading; -1 and errno where that cannot be. Never waits for a FIFO's other end. */
int open_in_output(const char *name);
/* Whether a tpgen that was killed has left something. */
bool is_half_done(void);
/* Makes all changes or, where one fails, none, and ends tpgen. */
void put_in_place(const struct change *change, int n, const struct lists *lists);
/* Where tpgen is to end with an error: takes back what has begun, and says what the folder holds.
 */
void keep_output(void);

#endif
