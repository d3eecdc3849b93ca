/* options.c: the command line's options, for all to read. */
#include "base/base.h"

#include <getopt.h>
#include <signal.h>

struct options options = {.last_rank = INT32_MAX};
