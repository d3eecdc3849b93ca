/* options.c: the options of the command line. All layers read them. */
#include "util/util.h"

#include <getopt.h>
#include <signal.h>

struct options options = {.last_rank = INT32_MAX};
