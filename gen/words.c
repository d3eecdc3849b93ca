/* words.c: names of a plan as words of a program: which words generated text says itself, and any
   bytes as an identifier that is none of them. */
#include "tpgen.h"

#include <string.h>

/* Words that a plan may use as a name and C or C++ may not: keywords, and macros of the headers
   that generated files include. */
static const char *const keyword[] = {"alignas",
                                      "alignof",
                                      "and",
                                      "and_eq",
                                      "asm",
                                      "auto",
                                      "bf16",
                                      "bitand",
                                      "bitor",
                                      "bool",
                                      "break",
                                      "case",
                                      "catch",
                                      "char",
                                      "class",
                                      "complex",
                                      "compl",
                                      "concept",
                                      "const",
                                      "const_cast",
                                      "consteval",
                                      "constexpr",
                                      "constinit",
                                      "continue",
                                      "decltype",
                                      "default",
                                      "delete",
                                      "do",
                                      "double",
                                      "dynamic_cast",
                                      "else",
                                      "enum",
                                      "errno",
                                      "explicit",
                                      "export",
                                      "extern",
                                      "false",
                                      "float",
                                      "for",
                                      "friend",
                                      "goto",
                                      "I",
                                      "if",
                                      "imaginary",
                                      "inline",
                                      "int",
                                      "linux",
                                      "long",
                                      "main",
                                      "math_errhandling",
                                      "mutable",
                                      "namespace",
                                      "new",
                                      "noexcept",
                                      "noreturn",
                                      "not",
                                      "not_eq",
                                      "nullptr",
                                      "offsetof",
                                      "operator",
                                      "or",
                                      "or_eq",
                                      "private",
                                      "protected",
                                      "public",
                                      "register",
                                      "reinterpret_cast",
                                      "requires",
                                      "restrict",
                                      "return",
                                      "short",
                                      "signed",
                                      "sizeof",
                                      "static",
                                      "static_assert",
                                      "static_cast",
                                      "stderr",
                                      "stdin",
                                      "stdout",
                                      "struct",
                                      "switch",
                                      "template",
                                      "this",
                                      "thread_local",
                                      "throw",
                                      "true",
                                      "try",
                                      "typedef",
                                      "typeid",
                                      "typename",
                                      "typeof",
                                      "union",
                                      "unix",
                                      "unsigned",
                                      "using",
                                      "va_arg",
                                      "virtual",
                                      "void",
                                      "volatile",
                                      "wchar_t",
                                      "while",
                                      "xdouble",
                                      "xor",
                                      "xor_eq",
                                      NULL};

/* What the statements of generated functions and kernels say themselves. */
static const char *const spoken[] = {"abs",
                                     "await",
                                     "b",
                                     "backward",
                                     "begin_behind",
                                     "begin_on",
                                     "bf16_narrow_part",
                                     "bf16_pair",
                                     "bf16_part",
                                     "bf16_to_float",
                                     "block_max",
                                     "block_min",
                                     "block_of",
                                     "block_sum",
                                     "blockIdx",
                                     "c1",
                                     "c2",
                                     "communicator",
                                     "constants",
                                     "copy_lines",
                                     "copy_operand",
                                     "copy_panel",
                                     "copy_strip",
                                     "cos",
                                     "cosf",
                                     "counted",
                                     "counts",
                                     "counts_in",
                                     "done",
                                     "edge_of",
                                     "end_on",
                                     "erff",
                                     "exp",
                                     "expf",
                                     "fabsf",
                                     "fill",
                                     "first",
                                     "float_to_bf16",
                                     "forward",
                                     "gather_parcels",
                                     "gelu_tanh_slope",
                                     "gemm",
                                     "gemm_batch",
                                     "gemm_batch_bf16",
                                     "gemm_batch_bf16_f32",
                                     "gemm_bf16",
                                     "gemm_bf16_f32",
                                     "gemm_on_one_thread",
                                     "groups",
                                     "i",
                                     "index_use",
                                     "index_uses",
                                     "index_within",
                                     "j",
                                     "k",
                                     "keep",
                                     "l",
                                     "lane_bits",
                                     "lanes",
                                     "larger",
                                     "learning_rate",
                                     "least",
                                     "load_lanes",
                                     "log",
                                     "logf",
                                     "lr",
                                     "m",
                                     "matmul",
                                     "matmul_add",
                                     "matmul_nn",
                                     "matmul_nn_batch",
                                     "matmul_nn_bf16",
                                     "matmul_nn_bf16_f32",
                                     "matmul_nt",
                                     "matmul_nt_batch",
                                     "matmul_nt_bf16",
                                     "matmul_nt_bf16_f32",
                                     "matmul_tn",
                                     "matmul_tn_batch",
                                     "matmul_tn_bf16",
                                     "matmul_tn_bf16_f32",
                                     "matmul_tt",
                                     "matmul_tt_batch",
                                     "matmul_tt_bf16",
                                     "matmul_tt_bf16_f32",
                                     "memcpy",
                                     "memset",
                                     "multiply_bf16",
                                     "multiply_by_parts",
                                     "n",
                                     "next_batch",
                                     "note_index",
                                     "noted_index",
                                     "now",
                                     "of",
                                     "p",
                                     "pack_parcels",
                                     "pack_parts",
                                     "pack_pieces",
                                     "pair_along",
                                     "pair_down",
                                     "pair_down_floats",
                                     "pair_first",
                                     "pair_of",
                                     "pair_second",
                                     "pair_turned",
                                     "parcel",
                                     "part",
                                     "part_begin",
                                     "part_first",
                                     "part_size",
                                     "parts_of_rows",
                                     "plus_product",
                                     "pow",
                                     "powf",
                                     "prepare",
                                     "product",
                                     "product_of_rows",
                                     "product_on_one_thread",
                                     "products",
                                     "program",
                                     "put_box",
                                     "put_rows",
                                     "q",
                                     "r",
                                     "random_at",
                                     "random_stream",
                                     "range",
                                     "rank",
                                     "rate",
                                     "ready",
                                     "reduce_parcels",
                                     "reduce_scatter",
                                     "root",
                                     "s",
                                     "shown",
                                     "sin",
                                     "sinf",
                                     "size",
                                     "slice_box",
                                     "slice_rows",
                                     "smaller",
                                     "sqrt",
                                     "sqrtf",
                                     "starts",
                                     "starts_in",
                                     "step",
                                     "stored",
                                     "stored_at",
                                     "stored_from",
                                     "stream",
                                     "stream_of",
                                     "strip_of",
                                     "t",
                                     "tanhf",
                                     "tensors",
                                     "threadIdx",
                                     "threads_for",
                                     "tile_block",
                                     "tile_columns",
                                     "tile_elements",
                                     "tile_exp",
                                     "tile_product",
                                     "tile_product_bf16",
                                     "tile_word",
                                     "turn_blocks",
                                     "turn_lines",
                                     "turn_some",
                                     "unpack_parcels",
                                     "unpack_parcels_on",
                                     "unpack_parts",
                                     "unpack_pieces",
                                     "update",
                                     NULL};

static bool is_in(const char *const *list, const char *s)
{
  for (int i = 0; list[i]; i++)
    if (*list[i] == *s && !strcmp(list[i], s)) return true;
  return false;
}

/* Whether it names a group's communicator or stream. */
static bool is_of_a_group(const char *name)
{
  static const char over[] = "over_", stream[] = "_stream";
  size_t n = strlen(name), end = strlen(stream);
  if (strncmp(name, over, strlen(over)) && (n <= end || strcmp(name + n - end, stream)))
    return false;
  for (int i = 0; i < graph->ngroup; i++)
    if (!strcmp(name, group_name(i)) || !strcmp(name, stream_name(i))) return true;
  return false;
}

bool is_spoken(const char *name)
{
  return is_of_a_group(name) || is_in(spoken, name);
}

const char *spared_name(const char *name)
{
  static const char *const word[][2] = {
      {"abs", "absolute"}, {"cos", "cosine"}, {"exp", "exponential"}, {"log", "logarithm"},
      {"pow", "power"},    {"sin", "sine"},   {"sqrt", "square_root"}};
  for (size_t i = 0; i < sizeof word / sizeof *word; i++)
    if (!strcmp(name, word[i][0])) return word[i][1];
  return name;
}

/* Macros are in capitals, or begin with their library's name: NULL, MPI_Fint, cudaStreamDefault. */
static bool looks_like_macro(const char *s)
{
  static const char *const library[] = {"MPI", "ompi_", "OPENBLAS", "M_", "cuda", "nccl", "cublas"};
  for (size_t i = 0; i < sizeof library / sizeof *library; i++)
    if (!strncmp(s, library[i], strlen(library[i]))) return true;
  return strlen(s) > 2 && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(s);
}

char *identifier(const char *s)
{
  enum { LONGEST = 48 };
  struct buffer b = {0};
  put_text(&b, "", 0);
  bool plain = strlen(s) <= LONGEST;
  for (const char *c = s; *c && plain; c++) {
    bool digit = *c >= '0' && *c <= '9';
    bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_' || *c == '.';
    plain = letter || digit;
    if (digit && c == s) put(&b, "n");
    put_text(&b, *c == '.' ? "_" : c, 1);
  }
  /* Names that begin with an underscore or hold two in a row belong to the compiler. */
  if (!plain || !*s || b.text[0] == '_' || strstr(b.text, "__") || is_in(keyword, b.text) ||
      looks_like_macro(b.text))
    return text("n%08x", (unsigned)hash_bytes(HASH_START, s, strlen(s)));
  return b.text;
}
