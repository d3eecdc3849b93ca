/* registry.c: the kernels of a program, each once, by name. */
#include "naming/naming.h"

#include <string.h>

struct kernel *kernels;
int nkernels, kernel_room;

static void forget_other_graphs(void);

char *kernel_definitions(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < nkernels; i++)
    put(&b, "%s%s%s%s", i ? "\n" : "", kernels[i].shared ? kernels[i].shared : "",
        kernels[i].comment, kernels[i].definition);
  if (b.length) b.text[b.length - 1] = 0; /* the template has the end of the line */
  return b.text;
}

/* Whether the kernel's code, or what it shares with others, has the word. */
static bool names_word(const struct kernel *k, const char *word)
{
  return has_word(k->definition, word) || (k->shared && has_word(k->shared, word));
}

static bool calls_function_of(enum function_header header, const struct kernel *k)
{
  for (const struct element_function *f = element_function; f->name; f++)
    if (f->header == header && names_word(k, f->name)) return true;
  return false;
}

/* Whether a kernel uses something that runtime/base/elements.h defines. */
static bool uses_elements(const struct kernel *k)
{
  static const char *const words[] = {"random_stream", "larger",   "smaller", "INT_MIN",
                                      "INT_MAX",       "LONG_MIN", "LONG_MAX"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (names_word(k, words[i])) return true;
  return calls_function_of(ELEMENTS_H, k);
}

const char *kernel_includes(void)
{
  /* Whether anything in the program has the type that runtime/base/elements.h defines. */
  bool has_bf16 = false;
  for (int i = 0; i < graph->nvalue && !has_bf16; i++)
    has_bf16 = graph->value[i].type != F32 && is_floating(graph->value[i].type);
  bool elements = has_bf16, indices = false;
  for (int i = 0; i < nkernels; i++) {
    elements |= uses_elements(&kernels[i]);
    indices |= calls_function_of(INDICES_H, &kernels[i]);
  }
  return text("%s%s%s", elements ? "#include \"base/elements.h\"\n" : "",
              indices ? "#include \"base/indices.h\"\n" : "", elements || indices ? "\n" : "");
}

/* The functions and names of the runtime's headers that kernels use, in the order of the
   headers. */
static const struct {
  const char *word, *header;
  enum language language; /* LANGUAGES: any */
} used[] = {{"multiply_tile", "cuda/kernels/groups.h", LANGUAGE_CUDA},
            {"row_of_place", "cuda/places.h", LANGUAGE_CUDA},
            {"grouped_nt_bf16", "cpu/kernels/groups_bf16.h", LANGUAGE_C},
            {"grouped_nn_bf16", "cpu/kernels/groups_bf16.h", LANGUAGE_C},
            {"grouped_tn_bf16", "cpu/kernels/groups_bf16.h", LANGUAGE_C},
            {"grouped_tn_bf16_bf16", "cpu/kernels/groups_bf16.h", LANGUAGE_C},
            {"rows_of_places", "cpu/kernels/groups.h", LANGUAGE_C},
            {"all_rows", "cpu/kernels/groups.h", LANGUAGE_C},
            {"grouped_nt", "cpu/kernels/groups.h", LANGUAGE_C},
            {"grouped_nn", "cpu/kernels/groups.h", LANGUAGE_C},
            {"grouped_tn", "cpu/kernels/groups.h", LANGUAGE_C},
            {"eigenvalues_of", "cpu/kernels/lapack.h", LANGUAGE_C},
            {"singular_values_of", "cpu/kernels/lapack.h", LANGUAGE_C},
            {"linear_of_bf16", "cpu/kernels/weights.h", LANGUAGE_C},
            {"linear_of_bf16_transposed", "cpu/kernels/weights.h", LANGUAGE_C},
            {"linear_of_int8", "cpu/kernels/weights.h", LANGUAGE_C},
            {"linear_of_int8_transposed", "cpu/kernels/weights.h", LANGUAGE_C},
            {"weight_block", "base/weight_blocks.h", LANGUAGES},
            {"nf4_block", "base/weight_blocks.h", LANGUAGES}};

const char *runtime_includes(void)
{
  struct buffer b = {0};
  const char *last = "";
  put_text(&b, "", 0);
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
    bool is_ours = used[i].language == LANGUAGES || used[i].language == target->language;
    if (!is_ours || !strcmp(used[i].header, last)) continue;
    const char *word = used[i].word;
    bool is_in_kernels = false;
    for (int k = 0; k < nkernels && !is_in_kernels; k++)
      is_in_kernels = names_word(&kernels[k], word);
    if (!is_in_kernels) continue;
    put(&b, "#include \"%s\"\n", used[i].header);
    last = used[i].header;
  }
  return b.text;
}

char *kernel_prototypes(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < nkernels; i++) put(&b, "%s", kernels[i].prototypes);
  return b.text;
}

/* Heads, a line each, as declarations. */
static char *declared(const char *heads)
{
  struct buffer b = {0};
  for (; *heads; heads += strcspn(heads, "\n"), heads += *heads == '\n')
    put(&b, "%.*s;\n", (int)strcspn(heads, "\n"), heads);
  return b.text;
}

/* By name, the number, from 1 on, of the kernel that has it, 0: none; and the last number that
   was appended to it. */
struct named {
  int kernel, again;
};

static struct named *with_kernel_name(const char *name)
{
  static struct memo names;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_text(&q, name);
  return answer_to(&names, &q, sizeof(struct named), &is_new);
}

/* The places of a pipeline have a graph each, and share their kernels. Tests have several programs,
   each with memory of its own. */
static void forget_other_graphs(void)
{
  static const struct graph *of;
  static const void *program;
  if (of == graph) return;
  of = graph;
  const void *now = graph->stages ? (const void *)graph->stages->all : graph;
  if (now != program) nkernels = kernel_room = 0;
  program = now;
  for (int i = 0; i < nkernels; i++) with_kernel_name(kernels[i].name)->kernel = i + 1;
  for (int i = 0; i < nkernels; i++) reserve_kernel_name(kernels[i].name);
}

int *planned(const char *plan)
{
  static struct memo plans;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_text(&q, plan);
  return answer_to(&plans, &q, sizeof(int), &is_new);
}

/* A name that no kernel has, or that of one with the same texts. */
static const char *name_for(const char *preferred, const char *prototypes, const char *definition)
{
  struct named *first = with_kernel_name(preferred);
  for (;; first->again++) {
    const char *name = first->again ? text("%s_%d", preferred, first->again + 1) : preferred;
    int known = with_kernel_name(name)->kernel;
    if (!known) return name;
    const struct kernel *k = &kernels[known - 1];
    if (!strcmp(k->given_prototypes, prototypes) && !strcmp(k->given_definition, definition))
      return name;
  }
}

const char *add_kernel(const char *preferred, const char *prototypes, const char *comment,
                       const char *definition, bool ours)
{
  forget_other_graphs();
  /* The name of a kernel with these texts. */
  static struct memo texts;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_text(&q, preferred);
  ask_text(&q, prototypes);
  ask_text(&q, definition);
  const char **given = answer_to(&texts, &q, sizeof(char *), &is_new);
  if (*given) return *given;
  const char *name = *given = name_for(preferred, prototypes, definition);
  if (with_kernel_name(name)->kernel) return name;
  GROW(kernels, nkernels, kernel_room);
  kernels[nkernels++] = (struct kernel){
      .name = name,
      .comment = comment,
      .prototypes = wrapped_lines(fill(declared(prototypes), "name", name, NULL), true),
      .definition = wrapped_lines(fill(definition, "name", name, NULL), ours),
      .given_prototypes = prototypes,
      .given_definition = definition};
  with_kernel_name(name)->kernel = nkernels;
  reserve_kernel_name(name);
  return name;
}
