/* identifiers.c: names of a plan as words of a program: which words C and the generated text need
   for themselves, and any bytes as an identifier that is none of them. */
#include "util/util.h"

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

bool is_word_of(const char *const *list, const char *s)
{
  for (int i = 0; list[i]; i++)
    if (*list[i] == *s && !strcmp(list[i], s)) return true;
  return false;
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
  size_t length = strlen(s);
  char *name = text(*s >= '0' && *s <= '9' ? "n%s" : "%s", s);
  for (char *c = name; (c = strchr(c, '.'));) *c = '_';
  bool plain = length && length <= LONGEST && !name[word_length(name)];
  /* Names that begin with an underscore or hold two in a row belong to the compiler. */
  if (!plain || *name == '_' || strstr(name, "__") || is_word_of(keyword, name) ||
      looks_like_macro(name))
    return text("n%08x", (unsigned)hash_bytes(HASH_START, s, length));
  return name;
}

bool is_plain_name(const char *name)
{
  return *name &&
         !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}
