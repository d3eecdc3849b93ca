// Answers of a program that generates, against the same model over whole texts.
//
//   whole_text data PROMPTS ANSWERS LENGTH FILE   writes the texts, prompts with their answers, as
//                                                 FILE, safetensors: tokens [texts, LENGTH]
//   whole_text compare PROMPTS ANSWERS FILE NEAR  FILE has the logits of these texts. Each token of
//                                                 an answer is the likeliest, and the logits of the
//                                                 likeliest five differ by NEAR at most
//   whole_text vary TEXTS LENGTH BELOW FILE       writes texts, each but the first with another
//                                                 token at one place
//   whole_text moved FILE NEAR                    FILE has their logits: prints whether a later
//                                                 token moves earlier logits by more than NEAR, and
//                                                 which; status 1 if one does
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXTS = 64, MOST_TOKENS = 4096 };
static struct {
  int prompt, n, token[MOST_TOKENS];
  json_t *answer;
} text_of[MOST_TEXTS];

static _Noreturn void give_up(const char *what, const char *path)
{
  fprintf(stderr, "whole_text: %s: %s\n", path, what);
  exit(1);
}

static json_t *next_line(FILE *file)
{
  static char line[1 << 20];
  return file && fgets(line, sizeof line, file) ? json_loads(line, 0, NULL) : NULL;
}

static int append_tokens(int text, const json_t *ids)
{
  for (size_t i = 0; i < json_array_size(ids) && text_of[text].n < MOST_TOKENS; i++)
    text_of[text].token[text_of[text].n++] = (int)json_integer_value(json_array_get(ids, i));
  return text_of[text].n;
}

static int read_texts(const char *prompts, const char *answers)
{
  FILE *p = fopen(prompts, "r"), *a = fopen(answers, "r");
  int n = 0;
  for (json_t *prompt; n < MOST_TEXTS && (prompt = next_line(p)); n++) {
    text_of[n].answer = next_line(a);
    if (!text_of[n].answer) give_up("it has too few answers", answers);
    text_of[n].prompt = append_tokens(n, json_object_get(prompt, "ids"));
    append_tokens(n, json_object_get(text_of[n].answer, "ids"));
  }
  if (!n) give_up("it has no prompt", prompts);
  return n;
}

static int write_data(int n, int length, const char *path)
{
  FILE *f = fopen(path, "wb");
  char header[256];
  const int size = snprintf(header, sizeof header,
                            "{\"tokens\":{\"dtype\":\"I64\",\"shape\":[%d,%d],\"data_offsets\":[0,"
                            "%d]}}",
                            n, length, n * length * 8);
  const uint64_t room = (uint64_t)(size + 7) / 8 * 8;
  if (!f) give_up("it cannot be written", path);
  fwrite(&room, 8, 1, f);
  fprintf(f, "%-*s", (int)room, header);
  for (int i = 0; i < n; i++)
    for (int t = 0; t < length; t++) {
      const int64_t token = t < text_of[i].n ? text_of[i].token[t] : 0;
      fwrite(&token, sizeof token, 1, f);
    }
  return fclose(f) != 0;
}

// The logits of n texts, [n, length, vocabulary], and these sizes.
static float *read_logits(const char *path, int *n, int *length, int *vocabulary)
{
  FILE *f = fopen(path, "rb");
  uint64_t size;
  if (!f || fread(&size, 8, 1, f) != 1 || size > 1 << 20) give_up("it is no safetensors", path);
  char *header = malloc(size + 1);
  if (!header || fread(header, 1, size, f) != size) give_up("it is cut off", path);
  header[size] = 0;
  const char *shape = strstr(header, "\"shape\"");
  if (!shape || sscanf(shape, "\"shape\":[%d,%d,%d]", n, length, vocabulary) != 3)
    give_up("it has no logits", path);
  const size_t all = (size_t)*n * (size_t)*length * (size_t)*vocabulary;
  float *logits = malloc(all * sizeof *logits);
  if (!logits || fread(logits, sizeof *logits, all, f) != all) give_up("it is cut off", path);
  return logits;
}

static int compare(int n, const char *path, double near)
{
  int texts, length, vocabulary, compared = 0;
  double most = 0;
  const float *logits = read_logits(path, &texts, &length, &vocabulary);
  if (texts < n) give_up("it has too few texts", path);
  for (int i = 0; i < n; i++)
    for (int t = text_of[i].prompt; t < text_of[i].n; t++, compared++) {
      const float *row = logits + ((size_t)i * (size_t)length + (size_t)t - 1) * (size_t)vocabulary;
      const json_t *top = json_array_get(json_object_get(text_of[i].answer, "top5"),
                                         (size_t)(t - text_of[i].prompt));
      int best = 0;
      for (int k = 1; k < vocabulary; k++)
        if (row[k] > row[best]) best = k;
      if (row[text_of[i].token[t]] + (float)near < row[best])
        give_up("a token is not the likeliest", path);
      if (json_array_size(top) != 5) give_up("an answer lacks its logits", path);
      for (size_t k = 0; k < 5; k++) {
        const json_t *pair = json_array_get(top, k);
        const int id = (int)json_integer_value(json_array_get(pair, 0));
        most = fmax(most, fabs(json_number_value(json_array_get(pair, 1)) - (double)row[id]));
      }
    }
  printf("  %d tokens, logits at most %.1e apart\n", compared, most);
  return !(most <= near) || !compared;
}

// The place at which text i differs from text 0.
static int changed_place(int i, int n, int length)
{
  return (int)((int64_t)i * (length - 1) / (n - 1));
}

static int vary(int n, int length, int below, const char *path)
{
  if (n < 2 || n > MOST_TEXTS || length > MOST_TOKENS) give_up("too many texts", path);
  for (int i = 0; i < n; i++) {
    text_of[i].n = length;
    for (int t = 0; t < length; t++) text_of[i].token[t] = (7 * t + t * t / 3) % below;
    int *changed = &text_of[i].token[changed_place(i, n, length)];
    if (i) *changed = (*changed + below / 2) % below;
  }
  return write_data(n, length, path);
}

static int moved(const char *path, double near)
{
  int n, length, vocabulary;
  const float *logits = read_logits(path, &n, &length, &vocabulary);
  for (int i = 1; i < n; i++) {
    const int place = changed_place(i, n, length);
    const size_t text = (size_t)i * (size_t)length * (size_t)vocabulary;
    for (size_t k = 0; k < (size_t)place * (size_t)vocabulary; k++) {
      const double by = fabs((double)(logits[text + k] - logits[k]));
      if (by <= near) continue;
      printf("token %d moves the logits of token %zu by %.1e\n", place, k / (size_t)vocabulary, by);
      return 1;
    }
  }
  puts("no later token moves earlier logits");
  return 0;
}

int main(int argc, char **argv)
{
  if (argc == 6 && !strcmp(argv[1], "vary"))
    return vary(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), argv[5]);
  if (argc == 4 && !strcmp(argv[1], "moved")) return moved(argv[2], atof(argv[3]));
  if (argc != 6) return 2;
  const int n = read_texts(argv[2], argv[3]);
  if (!strcmp(argv[1], "data")) return write_data(n, atoi(argv[4]), argv[5]);
  return compare(n, argv[4], atof(argv[5]));
}
