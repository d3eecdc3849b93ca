/* search_kinds.c: what a setting that an automatic search varies is of the parallel plan. */
#include "ir/ir.h"

const char *const search_kind_name[SEARCH_COUNT] = {
#define SEARCH_KIND(name, word) [name] = word,
    SEARCH_KINDS(SEARCH_KIND)
#undef SEARCH_KIND
};
