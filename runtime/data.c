// The batches of a program that reads tokens.
#include <stdlib.h>
#include "program.h"

void next_batch(long i)
{
  (void)i;
  fail_call(__FILE__, __LINE__, "next_batch", "tokens cannot be read yet");
}
