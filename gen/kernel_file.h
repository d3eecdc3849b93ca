/* kernel_file.h: what kernel_file.c and launch_line.c share. */
#ifndef KERNEL_FILE_H
#define KERNEL_FILE_H

#include "tpgen.h"

/* The author of the file at hand is told what is wrong with it. */
_Noreturn void fault(const char *what);
/* "12, 256" of what stands behind "// launch:", which may be "BLOCKS, THREADS, BYTES", too. */
char *launch_text(const char *line);

#endif
