/* ask.c: tpgen --move: the steps from one layout to another, without a plan. */
#include "tpgen.h"
