/* mutate_dump TPGEN DUMP DIRECTORY COUNT [ONLY]: runs tpgen on COUNT mutants of a dump, with --from
   and the pass in its first line, and checks each result. A mutant is a function of its number.
   tpgen must end by itself, with status 0, or with status 1 and a message of one line that begins
   with a file name. With ONLY, just the mutant of that number, which is kept. */
#include "splitmix64.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60, MOST_BYTES = 1 << 21, MOST_WORDS = 1 << 17 };

static uint64_t state;

static size_t below(size_t n)
{
  return n ? (size_t)(splitmix64(&state) % n) : 0;
}

static char dump[MOST_BYTES], mutant[2 * MOST_BYTES];
static size_t length; /* of the mutant */
static struct {
  size_t at, n;
} word[MOST_WORDS], line[MOST_WORDS];
static size_t nword, nline;

/* Finds the words and the lines after the first line, which names the pass. */
static void find_words(void)
{
  nword = nline = 0;
  size_t at = strcspn(mutant, "\n") + 1;
  for (size_t i = at; i < length && nline < MOST_WORDS; i += line[nline - 1].n)
    line[nline++].at = i, line[nline - 1].n = strcspn(mutant + i, "\n") + 1;
  while (at < length && nword < MOST_WORDS) {
    size_t n = isspace((unsigned char)mutant[at]) ? 0 : 1;
    while (n && (isalnum((unsigned char)mutant[at + n]) || mutant[at + n] == '_') &&
           isalnum((unsigned char)mutant[at + n - 1]))
      n++;
    if (n) word[nword++].at = at, word[nword - 1].n = n;
    at += n ? n : 1;
  }
}

static void replace(size_t at, size_t n, const char *by, size_t m)
{
  char copy[1 << 16];
  if (m > sizeof copy || length + m >= sizeof mutant) return;
  memcpy(copy, by, m);
  memmove(mutant + at + m, mutant + at + n, length - at - n + 1);
  memcpy(mutant + at, copy, m);
  length += m - n;
}

static void mutate(void)
{
  static const char *const numbers[] = {"0",          "1",  "-1", "2",   "7",
                                        "2147483647", "64", "9",  "255", "9223372036854775807"};
  find_words();
  if (!nword || !nline) return;
  size_t a = below(nword), b = below(nword), x = below(nline), y = below(nline);
  const char *number = numbers[below(sizeof numbers / sizeof *numbers)];
  switch (below(8)) {
  case 0:
    replace(word[a].at, word[a].n, mutant + word[b].at, word[b].n);
    break;
  case 1:
    replace(word[a].at, word[a].n, "", 0);
    break;
  case 2:
    replace(line[x].at, line[x].n, "", 0);
    break;
  case 3:
    replace(line[x].at, 0, mutant + line[y].at, line[y].n);
    break;
  case 4:
    mutant[line[x].at + below(line[x].n)] = (char)(1 + below(255));
    break;
  default: /* mostly a number: the most likely to be accepted */
    for (int i = 0; i < 50 && !isdigit((unsigned char)mutant[word[a].at + word[a].n - 1]); i++)
      a = below(nword);
    if (mutant[word[a].at] == 'v')
      replace(word[a].at + 1, word[a].n - 1, mutant + word[b].at, word[b].n);
    else
      replace(word[a].at, word[a].n, number, strlen(number));
  }
}

static void write_mutant(const char *path)
{
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(mutant, 1, length, f) != length || fclose(f)) exit(2);
}

/* Whether the message is one line, and not a sanitizer's report. */
static bool is_message(const char *path)
{
  char text[4096];
  FILE *f = fopen(path, "rb");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  return n && strchr(text, '\n') == text + n - 1 && strstr(text, ": error: ");
}

static int run(const char *tpgen, const char *from, const char *path, const char *said)
{
  pid_t child = fork();
  if (child == 0) {
    int to = open("/dev/null", O_WRONLY), error = open(said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(to, 1);
    dup2(error, 2);
    alarm(SECONDS);
    execl(tpgen, tpgen, from, "--dump=memory", path, (char *)NULL);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

int main(int argc, char **argv)
{
  if (argc < 5) return 2;
  FILE *f = fopen(argv[2], "rb");
  size_t n = f ? fread(dump, 1, sizeof dump - 1, f) : 0;
  char pass[64], from[96], path[4096], said[4096];
  if (!n || sscanf(dump, "after %63s", pass) != 1) return 2;
  fclose(f);
  snprintf(from, sizeof from, "--from=%s", pass);
  snprintf(path, sizeof path, "%s/mutant", argv[3]);
  snprintf(said, sizeof said, "%s/said", argv[3]);
  int only = argc > 5 ? atoi(argv[5]) : -1, failures = 0, taken = 0;
  for (int i = 0; i < atoi(argv[4]); i++) {
    if (only >= 0 && i != only) continue;
    state = (uint64_t)i * UINT64_C(0x2545f4914f6cdd1d);
    memcpy(mutant, dump, n + 1);
    length = n;
    for (size_t k = 1 + below(2); k--;) mutate();
    write_mutant(path);
    int status = run(argv[1], from, path, said);
    bool good = WIFEXITED(status) &&
                (WEXITSTATUS(status) == 0 || (WEXITSTATUS(status) == 1 && is_message(said)) ||
                 (WEXITSTATUS(status) == 3 && is_message(said)));
    taken += WIFEXITED(status) && !WEXITSTATUS(status);
    if (good) continue;
    printf("mutant %d of %s: status %#x\n", i, argv[2], (unsigned)status);
    failures++;
  }
  printf("%s mutants of %s: %d were taken, %d failed\n", argv[4], argv[2], taken, failures);
  return failures > 0;
}
