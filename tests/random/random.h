/* A plan made at random (random_plan.c): what its parts share. */
#ifndef RANDOM_H
#define RANDOM_H

enum {
  MAX_NDIM = 4,
  MAX_STATEMENTS = 12,
  MAX_TENSORS = MAX_STATEMENTS + 3,
  MAX_MODULES = MAX_STATEMENTS + 1,
  MAX_INPUTS = 12 * MAX_TENSORS,
  MAX_OWN = 2,
  MAX_MESH = 6,
  MAX_ELEMENTS = 1200
};

struct tensor {
  int ndim, size[MAX_NDIM];
  int reads;
};

/* Modules that styles know, or that consist of such; the latter may be lists of equal ones. OWN: of
   a class whose forward is made at random, too. */
enum kind { LINEAR, EMBEDDING, NORM, OTHER, MLP, GATED, ATTENDING, IMAGE, OWN, NKINDS };

struct module {
  enum kind kind;
  int ndim; /* of what it takes and makes */
  int own;  /* of OWN: which class */
};

/* A class: its forward is a list of statements, each of which makes one more tensor from those that
   are there; its modules and parameters are made by what stands in `init`. */
struct scope {
  struct tensor tensor[MAX_TENSORS];
  struct module module[MAX_MODULES];
  int ntensor, nmodule, nparameter;
  char init[1 << 12], forward[1 << 14];
};

extern struct scope now; /* the class that is being made */
extern struct scope own[MAX_OWN];
extern int nown;

struct input {
  struct tensor shape;
  int below; /* whole numbers, from 0; 0: float32 */
};
extern struct input input[MAX_INPUTS];
extern int ninput;

extern int mesh[MAX_MESH], nmesh; /* the mesh, and how many dimensions it has */
extern const char *type;          /* that the model computes in */
extern int rounds;                /* whether anything is rounded to bfloat16 */
extern int is_even;               /* whether most sizes are powers of two */
extern int is_exact;              /* whether nothing may be rounded to bfloat16 */

int any(int n);
int any_size(void);
#define COUNT(list)  ((int)(sizeof(list) / sizeof *(list)))
#define ANY_OF(list) ((list)[any(COUNT(list))])

/* Adds to now.init or now.forward. */
#define SAY(text, ...)                                                                             \
  (void)snprintf((text) + strlen(text), sizeof(text) - strlen(text), __VA_ARGS__)

/* tensors.c: the tensors there are, and the statement that makes one more. */
int elements(const struct tensor *t);
int same_shape(const struct tensor *a, const struct tensor *b);
int pick(int least, int most);
int pick_like(int a);
const char *read_of(int i);
void begin(struct tensor shape);
int done(void);
const char *input_of(struct tensor shape, int below);
struct tensor vector(int size);
struct tensor without(struct tensor t, int d);
struct tensor with(struct tensor t, int d, int size);
struct tensor resized(struct tensor t, int d, int size);
void say_sizes(const struct tensor *t);
int any_factor(int n);

/* statements.c, products.c, modules.c, layouts.c: each makes a statement and returns whether it
   did. */
int elementwise(void);
int dropout(void);
int along(void);
int variance(void);
int reduction(void);
int part(void);
int join(void);
int triangle(void);
int permute(void);
int reshape(void);
int merge(void);
int split_dimension(void);
int stretch(void);
int parameter(void);
int product(void);
int rows_with_rows(void);
int embedded(void);
int linear(void);
int norm(void);
int identity(void);
int convolution(void);
int pool(void);
int attention(void);
int blocks(void);
int own_blocks(void);
int redistributed(void);

/* random_plan.c: adds statements to the class that is being made. */
void say_statements(int n, int has_blocks);

void put_classes(void); /* modules.c */

/* layouts.c: one placement; all styles, units and policies. */
const char *placement(int ndim);
void put_styles(void);
void put_automatic(void);

#endif
