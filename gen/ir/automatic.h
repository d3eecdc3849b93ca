/* automatic.h: what a plan's auto() asks for: the placements of these modules, over some dimensions
   of the mesh, are tpgen's to choose. */
#ifndef TPGEN_IR_AUTOMATIC_H
#define TPGEN_IR_AUTOMATIC_H

#include "util/util.h"

struct automatic {
  unsigned dims;      /* a bit for each dimension of the mesh */
  int64_t memory;     /* the most bytes of a rank; 0: no limit */
  int64_t parameters; /* the most bytes of parameters that a rank keeps; 0: no limit */
  bool cuts_large;    /* all large parameters are cut: of a mesh that tpgen finds */
  int line;
  int nmodule;   /* when auto() was asked last: the plan may make more */
  bool *chooses; /* by module, of those: whether its placements are chosen */
};

static inline bool is_chosen(const struct automatic *a, int module)
{
  return module < a->nmodule && a->chooses[module];
}

#endif
