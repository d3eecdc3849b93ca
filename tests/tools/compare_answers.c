// Answers of a program that generates against a golden file's (tests/golden/generate).
//
//   compare_answers prompts GOLDEN               prints its prompts, a line {"ids": [...]} each
//   compare_answers greedy GOLDEN ANSWERS NEAR   the answers are its tokens; where they have the
//   five best of
//                                                each token, logits differ by NEAR at most. Prints
//                                                the largest difference
//   compare_answers ends GOLDEN ANSWERS          the answer is that of its run with an end token
//   compare_answers same ANSWERS ANSWERS         both have the same ids, line by line
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *golden(const char *path)
{
  json_error_t error;
  json_t *file = json_load_file(path, 0, &error);
  if (file) return file;
  fprintf(stderr, "%s: %s\n", path, error.text);
  exit(2);
}

// The next line of a file of answers, or NULL.
static json_t *next_answer(FILE *file)
{
  static char line[1 << 20];
  json_error_t error;
  if (!file || !fgets(line, sizeof line, file)) return NULL;
  return json_loads(line, 0, &error);
}

static int print_prompts(const json_t *of)
{
  size_t i;
  json_t *run, *runs = json_object_get(of, "runs");
  json_array_foreach(runs, i, run)
  {
    char *ids = json_dumps(json_object_get(run, "prompt"), JSON_COMPACT);
    printf("{\"ids\": %s}\n", ids);
    free(ids);
  }
  return 0;
}

// The largest difference of the logits of the same tokens among the five best; infinity if they
// have others.
static double largest_difference(const json_t *expected, const json_t *given)
{
  double most = 0;
  if (json_array_size(expected) != json_array_size(given)) return INFINITY;
  for (size_t t = 0; t < json_array_size(expected); t++)
    for (size_t k = 0; k < 5; k++) {
      const json_t *a = json_array_get(json_array_get(expected, t), k),
                   *b = json_array_get(json_array_get(given, t), k);
      const double apart =
          fabs(json_number_value(json_array_get(a, 1)) - json_number_value(json_array_get(b, 1)));
      if (!json_is_array(b)) return INFINITY;
      if (apart > most) most = apart;
    }
  return most;
}

static int check_greedy(const json_t *of, const char *path, double near)
{
  size_t i;
  int wrong = 0;
  double most = 0;
  json_t *run, *runs = json_object_get(of, "runs");
  FILE *file = fopen(path, "r");
  json_array_foreach(runs, i, run)
  {
    json_t *answer = next_answer(file), *top = json_object_get(answer, "top5");
    if (!json_equal(json_object_get(run, "tokens"), json_object_get(answer, "ids"))) {
      fprintf(stderr, "%s: prompt %zu has other tokens\n", path, i);
      wrong++;
    }
    if (top) most = fmax(most, largest_difference(json_object_get(run, "top5"), top));
  }
  if (next_answer(file)) wrong++;
  printf("  %zu prompts, logits at most %.1e apart\n", json_array_size(runs), most);
  return wrong > 0 || !(most <= near) || json_array_size(runs) == 0;
}

static int check_end(const json_t *of, const char *path)
{
  FILE *file = fopen(path, "r");
  json_t *answer = next_answer(file),
         *expected = json_object_get(json_object_get(of, "eos"), "tokens");
  return !expected || !json_equal(expected, json_object_get(answer, "ids")) ||
         strcmp(json_string_value(json_object_get(answer, "ended")), "stop") != 0;
}

static int check_same(const char *one, const char *other)
{
  FILE *a = fopen(one, "r"), *b = fopen(other, "r");
  for (int i = 0;; i++) {
    json_t *x = next_answer(a), *y = next_answer(b);
    if (!x || !y) return i == 0 || x || y;
    if (!json_equal(json_object_get(x, "ids"), json_object_get(y, "ids"))) {
      fprintf(stderr, "%s and %s: line %d differs\n", one, other, i + 1);
      return 1;
    }
  }
}

int main(int argc, char **argv)
{
  const char *what = argc > 2 ? argv[1] : "";
  if (strcmp(what, "prompts") == 0) return print_prompts(golden(argv[2]));
  if (strcmp(what, "greedy") == 0 && argc == 5)
    return check_greedy(golden(argv[2]), argv[3], atof(argv[4]));
  if (strcmp(what, "ends") == 0 && argc == 4) return check_end(golden(argv[2]), argv[3]);
  if (strcmp(what, "same") == 0 && argc == 4) return check_same(argv[2], argv[3]);
  fprintf(stderr, "compare_answers: what is to be compared?\n");
  return 2;
}
