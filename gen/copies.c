/* copies.c: moves within a rank's memory, as text. */
#include "tpgen.h"
