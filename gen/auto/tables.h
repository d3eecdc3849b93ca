/* tables.h: tables of costs of variables: the state of eliminate.c, which bounds.c makes smaller. */
#ifndef TPGEN_AUTO_TABLES_H
#define TPGEN_AUTO_TABLES_H

#include "auto/auto.h"

enum { MOST_SCOPE = 16 };

struct table {
  int n, variable[MOST_SCOPE];
  double *cost;
  bool is_gone;
};

/* A variable that was eliminated: its value by those of its neighbours. */
struct decision {
  int variable, n, neighbour[MOST_SCOPE];
  uint16_t *value; /* NULL: it is `fixed` */
  int fixed;
};

struct tables {
  int nvariable, variable_room, *size;
  int **kept; /* by variable: its values that are left, as they were numbered; NULL: all */
  int ntable, table_room;
  struct table *table;
  int ndecision, decision_room;
  struct decision *decision;
  bool is_exact;
};


void *table_memory(size_t n, size_t size);

/* The same as eliminate(), without leave_out_values(). */
bool eliminate_all(struct tables *t, int *value, double *least);

/* bounds.c: leaves out values that are in no cheapest answer. All tables have two variables at
   most. */
void leave_out_values(struct tables *t);

#endif
