/* OpenBLAS as it is on a processor that it does not know: preloaded, this says that it computes for
   a Prescott, and adds to the file $STARTS what each start of the program is told to compute for.
 */
#include <stdio.h>
#include <stdlib.h>

char *openblas_get_corename(void);

char *openblas_get_corename(void)
{
  static char core[] = "Prescott";
  return core;
}

__attribute__((constructor)) static void note_start(void)
{
  const char *name = getenv("STARTS"), *core = getenv("OPENBLAS_CORETYPE");
  FILE *file = name ? fopen(name, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s\n", core ? core : "as it likes");
  fclose(file);
}
