/* auto.h: auto(): the placements that tpgen finds itself, as styles and units.

   The program of the front end is folded: equal layers count once. Each value has a variable, its
   home: the layout in which it stays between operations, and whether its gradient is pending there.
   A call of a module has another variable for each input, as a style may move it there. The cost of
   an operation depends on the homes of its operands only, so the cheapest homes of all values
   follow by eliminating one variable after the other. */
#ifndef TPGEN_AUTO_H
#define TPGEN_AUTO_H

#include "util/util.h"
#include "ir/ir.h"
#include "sharding/sharding.h"
#include "target/target.h"

/* -------------------------------------------------------------------------------------- fold.c */

/* An input of a call of a module whose placements are chosen. */
struct module_input {
  int call, index, value;
  int from;   /* the node that is moved there */
  int shared; /* what it has in common with other calls that take the same; or NONE */
};

/* Nodes: values, then entries, then what entries share. Equal nodes of equal layers are one: the
   first of them. */
struct folded {
  int nentry;
  struct module_input *entry;
  int nnode;
  int *first_like;          /* by node */
  int *first_op;            /* by operation */
  int (*reads)[MAX_INPUTS]; /* by operation */
  bool *leaves;             /* by value: a module whose placements are chosen gives it */
};

struct folded fold_program(const struct automatic *a);
int node_of(const struct folded *f, int node);
/* The value whose shape and type the node has. */
int value_of_node(const struct folded *f, int node);

/* ----------------------------------------------------------------------------------- layouts.c */

/* The home of a node. */
struct home {
  int layout;
  int gradient;      /* the layout of its gradient */
  unsigned pending;  /* dimensions where its gradient stays pending */
  unsigned gathered; /* a parameter: dimensions over which it is cut, and gathered where used */
};

/* The dimensions of the mesh over which placements are chosen. */
enum { MOST_DIMS = 4, MOST_SAMPLED = 64 };
struct auto_space {
  int ndim, dim[MOST_DIMS];
  double weight[MAX_MESH]; /* what a byte over this dimension costs */
  double second; /* what a second costs where the mesh has a device; 0: only bytes count */
  double step;   /* what each step of a move costs beside its bytes */
  int places, place[MOST_SAMPLED][MAX_MESH]; /* coordinates of some ranks */
  double parts; /* in so many parts the other dimensions of the mesh cut the batch */
};

/* Each step counts a little, so that of equal costs that of fewer steps is taken. */
static const double STEP = 1e-3;
struct auto_space make_space(unsigned dims);
/* Layouts have numbers; they are in their usual form. */
int number_of_layout(struct layout layout);
struct layout layout_of_number(int number);
struct home whole_home(void);
/* Whether so many parts are equal, or nearly. */
bool cuts_well(int64_t size, int64_t parts);
bool cuts_all_well(const struct auto_space *s, struct shape shape, struct layout layout);
/* What moving a tensor of so many bytes costs. */
double cost_of_move(const struct auto_space *s, double bytes, int from, int to);

/* -------------------------------------------------------------------------------- strategies.c */

/* A way in which an operation runs: the numbers of the layouts of its operands; and of their
   gradients, as they arrive and leave. */
struct op_strategy {
  int in[MAX_INPUTS], in_gradient[MAX_INPUTS];
  int out[MAX_OUTPUTS], out_gradient[MAX_OUTPUTS];
  double cost;
  double work;      /* what the time of its arithmetic and its memory costs; 0: only bytes count */
  bool is_of_uncut; /* the operation allows no cut: the passes refuse a cut input */
};

/* Cost of work that ranks do alike: more than any move. */
#define UNDIVIDED 1e15
/* works: whether its work is to be divided; strided: by input, layouts with strided placements that
   it may have. */
int find_strategies(const struct auto_space *s, const struct op *op, bool works,
                    const struct list *strided, struct op_strategy **list);

/* ------------------------------------------------------------------------------------- works.c */

/* By operation: whether its work is so much that ranks should divide it. times: how many it is the
   first of; 0 where it is not the first. */
bool *operations_that_work(const int *times);

/* --------------------------------------------------------------------------------- eliminate.c */

/* Variables with finite domains, and tables of costs of some of them; the sum is to be least. */
enum { MOST_SCOPE = 16 };

struct cost_table {
  int n, variable[MOST_SCOPE];
  double *cost;
  bool is_gone;
};

/* A table of a variable, its last one, by some of the variable's neighbours. */
struct table_of_variable {
  double *cost;
  size_t stride[MOST_SCOPE]; /* by neighbour; 0: it has not this one */
};

/* A variable that was eliminated: its value by those of its neighbours, or the tables from which it
   follows. */
struct elimination {
  int variable, n, neighbour[MOST_SCOPE];
  uint16_t *value;
  int ntable;
  struct table_of_variable *table;
  int fixed; /* its value, where there is neither */
};

struct cost_tables {
  int nvariable, variable_room, *size;
  int **kept; /* by variable: its values that are left, as they were numbered; NULL: all */
  int ntable, table_room;
  struct cost_table *table;
  int ndecision, decision_room;
  struct elimination *decision;
  size_t kept_cells; /* of tables in decisions */
  bool is_exact;
};

/* Memory that free() gives back. */
void *table_memory(size_t n, size_t size);
/* The least of n numbers, one or more. */
double least_of_list(const double *list, int n);
struct cost_tables *new_tables(void);
int add_variable(struct cost_tables *t, int n);
/* The cost of each combination; the last variable varies fastest. Copies it. */
void add_table(struct cost_tables *t, int n, const int *variable, const double *cost);
/* The values of all variables, and the least sum. False: a bound was met. */
bool eliminate(struct cost_tables *t, int *value, double *least);
void free_tables(struct cost_tables *t);

/* ------------------------------------------------------------------------------------ bounds.c */

/* The same; values that are in no cheapest answer are left out first. No table has more than two
   variables. */
bool find_least(struct cost_tables *t, int *value, double *least);

/* ------------------------------------------------------------------------------------- times.c */

/* By value: whether it is read from memory, and written there. */
bool *values_in_memory(void);
/* What an operation takes on a rank in this way, without moves. */
double seconds_of_way(const struct auto_space *s, const bool *is_in_memory, const struct op *op,
                      const struct op_strategy *way, bool has_gradient);

/* ------------------------------------------------------------------------------------- solve.c */

struct solution {
  struct folded folded;
  struct auto_space space;
  struct home *home; /* by node; of first ones */
  bool *has_home;
  int *made_as; /* by value: the layout in which its operation leaves it */
  double *kept; /* by parameter, of first ones: the bytes that a rank keeps of it */
  double cost, parameters;
  double moved; /* about the bytes that a rank receives, weighted as the cost's */
  bool is_exact;
};

/* Bounds of the bytes that a rank keeps of a parameter, and of each one like it. */
struct kept_bound {
  int parameter;
  double least, most;
};

/* What a search is for. */
struct search_for {
  const struct automatic *asked;
  double price;   /* of a byte of parameters that a rank keeps */
  double caution; /* above 1: what moves cost within modules, where no style asks for them, so that
                     the passes may decide otherwise */
  bool by_bytes;  /* only bytes count, also where the mesh has a device */
  bool few_as_they_are; /* a few equal layers count as so many, not as more */
  int nbound;
  const struct kept_bound *bound;
};

struct solution solve_placements(const struct search_for *what);

/* ------------------------------------------------------------------------------------ choose.c */

/* Within the limit of parameters; the plan's error if there are none. Of `what` neither the price
   nor bounds. */
struct solution choose_placements(const struct search_for *what);
/* The fewest bytes of parameters that a rank can keep. */
double least_parameters(const struct automatic *a);
/* Whether both have the same homes. */
bool same_solutions(const struct solution *a, const struct solution *b);

/* ------------------------------------------------------------------------------------ styles.c */

/* Adds the styles and units of a solution to the graph. */
void add_styles_of(const struct solution *s, const struct automatic *a);

/* ------------------------------------------------------------------------------------- table.c */

/* Notes the styles and the units from these on, as text of a plan. */
void print_styles(int first, int units, const struct automatic *a);
/* Whether its projection is several side by side, each a parameter. */
bool parts_of_module(int module);

#endif
