// SPDX-License-Identifier: MIT
// The command line: each option is a row of a table.
#include "base/options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/help.h"
#include "base/program.h"

enum { DEADLINE = 600 };

// Options without a letter.
enum {
  PROMPT = 256,
  PROMPTS,
  OUTPUT_TO,
  ENCODE,
  SCORE,
  CHECK_CAUSAL,
  TOKENIZER,
  TEMPERATURE,
  TOP_P,
  MIN_P,
  PENALTY,
  TOP_K,
  TOP,
  SEED,
  GREEDY,
  RAW,
  STOP,
  CHAT,
  SYSTEM,
  SERVE,
  HOST,
  TOKEN_FILE,
  QUEUE
};

static bool read_count(const char *text, int least, int *count)
{
  char *end;
  errno = 0;
  long n = strtol(text, &end, 10);
  if (errno || end == text || *end || n < least || n > INT_MAX / 2) return false;
  *count = (int)n;
  return true;
}

// A number, or one of 2^10, 2^20 or 2^30 bytes.
static bool read_bytes(const char *text, uint64_t *bytes)
{
  char *end;
  errno = 0;
  if (*text < '0' || *text > '9') return false;
  unsigned long long n = strtoull(text, &end, 10);
  int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  if (errno || end[shift > 0] || n == 0 || n > ULLONG_MAX >> 1 >> shift) return false;
  *bytes = (uint64_t)n << shift;
  return true;
}

static bool read_positive(const char *text, double *number)
{
  char *end;
  *number = strtod(text, &end);
  return end != text && !*end && *number > 0 && isfinite(*number);
}

// "90" or "90s", "30m", "2h", "1d"; or "1:30:00" as in Slurm's limits: hours, minutes, seconds.
static bool read_seconds(const char *text, double *seconds)
{
  static const char units[] = "smhd";
  static const int SECONDS[] = {1, 60, 3600, 86400};
  int hours, minutes, rest, end = 0;
  char *unit;
  if (sscanf(text, "%5d:%2d:%2d%n", &hours, &minutes, &rest, &end) == 3 && !text[end]) {
    *seconds = hours * 3600.0 + minutes * 60.0 + rest;
    return hours >= 0 && minutes >= 0 && rest >= 0 && *seconds > 0;
  }
  *seconds = strtod(text, &unit);
  if (unit == text || !isfinite(*seconds) || *seconds <= 0) return false;
  const char *which = *unit ? strchr(units, *unit) : units;
  if (!which || (*unit && unit[1])) return false;
  *seconds *= SECONDS[which - units];
  return true;
}

static bool add_text(const char **list, int most, const char *text)
{
  int n = 0;
  while (list[n]) n++;
  list[n] = n < most ? text : NULL;
  return n < most;
}

// "best", "3", "best,3", "3,best"
static bool read_keep(const char *text, struct options *o)
{
  char word[32];
  while (*text) {
    const size_t length = strcspn(text, ",");
    if (length == 0 || length >= sizeof word) return false;
    snprintf(word, sizeof word, "%.*s", (int)length, text);
    if (strcmp(word, "best") == 0)
      o->keep_best = true;
    else if (!read_count(word, 1, &o->keep))
      return false;
    text += length;
    if (*text && !*++text) return false;
  }
  return o->keep_best || o->keep;
}

static bool read_number(const char *text, double least, double most, double *number)
{
  char *end;
  *number = strtod(text, &end);
  return end != text && !*end && *number >= least && *number <= most;
}

static bool read_seed(const char *text, uint64_t *seed)
{
  char *end;
  errno = 0;
  *seed = strtoull(text, &end, 10);
  return !errno && end != text && !*end && *text >= '0' && *text <= '9';
}

// Options of a program that generates.
static bool read_generation(struct options *o, int option)
{
  int n = 0;
  o->sets_generation = true;
  switch (option) {
  case PROMPT:
    o->prompt = optarg;
    return true;
  case PROMPTS:
    o->prompts = optarg;
    return true;
  case OUTPUT_TO:
    o->output = optarg;
    return true;
  case ENCODE:
    o->encode = optarg;
    return true;
  case SCORE:
    o->score = optarg;
    return true;
  case CHECK_CAUSAL:
    o->check_causal = optarg;
    return true;
  case TOKENIZER:
    o->tokenizer = optarg;
    return true;
  case TEMPERATURE:
    return read_number(optarg, 0, 1000, &o->temperature);
  case TOP_P:
    return read_number(optarg, 0, 1, &o->top_p);
  case MIN_P:
    return read_number(optarg, 0, 1, &o->min_p);
  case PENALTY:
    return read_number(optarg, 1e-3, 1000, &o->repetition_penalty);
  case TOP_K:
    return read_count(optarg, 0, &o->top_k);
  case TOP:
    return read_count(optarg, 1, &o->top) && o->top <= 64;
  case SEED:
    return read_seed(optarg, &o->draw_seed);
  case GREEDY:
    o->temperature = 0;
    return true;
  case RAW:
    o->raw = true;
    return true;
  case CHAT:
    o->chat = true;
    return true;
  case SYSTEM:
    o->system = optarg;
    return true;
  case SERVE:
    return read_count(optarg, 1, &o->serve) && o->serve < 1 << 16;
  case HOST:
    o->host = optarg;
    return true;
  case TOKEN_FILE:
    o->token_file = optarg;
    return true;
  case QUEUE:
    return read_count(optarg, 0, &o->queue);
  case STOP:
    while (o->stop[n]) n++;
    if (n < MOST_STOPS) o->stop[n] = optarg;
    return n < MOST_STOPS && *optarg;
  default:
    return false;
  }
}

static bool read_option(struct options *o, int option)
{
  if (option >= PROMPT) return read_generation(o, option);
  switch (option) {
  case 's':
    o->sets_steps = true;
    return read_count(optarg, 0, &o->steps);
  case 'c':
    return read_count(optarg, 1, &o->epochs);
  case 'l':
    return read_count(optarg, 1, &o->log_every);
  case 'v':
    return read_count(optarg, 1, &o->save_every);
  case 'D':
    return read_count(optarg, 0, &o->deadline);
  case 'b':
    return read_bytes(optarg, &o->shard_bytes);
  case 'p':
    return read_positive(optarg, &o->peak_tflops);
  case 'g':
    o->graph = true;
    return true;
  case 'f':
    o->profile = true;
    return true;
  case 'w':
    if (o->weights) return add_text(o->more_weights, MOST_PATTERNS, optarg);
    o->weights = optarg;
    return true;
  case 'i':
    return add_text(o->ignore, MOST_PATTERNS, optarg);
  case 'L':
    return add_text(o->allow_missing, MOST_PATTERNS, optarg);
  case 'd':
    return add_text(o->data, MOST_DATA, optarg);
  case 't':
    if (program->generation) return read_count(optarg, 1, &o->make);
    o->tokens = optarg;
    return true;
  case 'a':
    return add_text(o->validate, MOST_DATA, optarg);
  case 'q':
    o->evaluate = true;
    return add_text(o->validate, MOST_DATA, optarg);
  case 'Y':
    o->best = optarg;
    return (strncmp(optarg, "max:", 4) == 0 || strncmp(optarg, "min:", 4) == 0) && optarg[4];
  case 'y':
    return read_count(optarg, 1, &o->validate_every);
  case 'z':
    return read_count(optarg, 1, &o->validate_steps);
  case 'k':
    return read_keep(optarg, o);
  case 'x':
    return read_count(optarg, 1, &o->stop_after);
  case 'm':
    o->metrics = optarg;
    return true;
  case 'B':
    o->tensorboard = optarg;
    return true;
  case 'G':
    o->logs = optarg;
    return true;
  case 'Z':
    o->stragglers = true;
    return true;
  case 'u':
    o->dry_run = true;
    return true;
  case 'r':
    o->load = optarg;
    return true;
  case 'R':
    o->resume = optarg;
    return true;
  case 'O':
    o->overwrite = true;
    return true;
  case 'S':
    o->save_at_once = true;
    return true;
  case 'N':
    o->on_nan = strcmp(optarg, "stop") == 0       ? NAN_STOP
                : strcmp(optarg, "rollback") == 0 ? NAN_ROLLBACK
                : strcmp(optarg, "skip") == 0     ? NAN_SKIP
                                                  : NAN_UNKNOWN;
    return true;
  case 'T':
    return read_seconds(optarg, &o->max_time);
  case 'o':
    o->save = optarg;
    return true;
  case 'e':
    o->export_to = optarg;
    return true;
  case 'A':
    o->adapter = optarg;
    return true;
  case 'E':
    o->export_adapter = optarg;
    return true;
  case 'M':
    o->ema = true;
    return true;
  case 'V':
    o->verify = optarg;
    return true;
  case 'n':
    o->no_verify = true;
    return true;
  default:
    o->help = true;
    return option == 'h';
  }
}

// The message for two options that exclude each other, or one that needs another; or NULL.
static const char *contradiction(struct options *o)
{
  if (o->sets_generation && !program->generation)
    return "--prompt and the like are for a program that generates: its plan ends with "
           "generate{...}";
  if (program->generation &&
      (o->data[0] || o->load || o->save || o->resume || o->export_to || o->dry_run))
    return "a program that generates takes --weights and prompts, and saves nothing";
  if ((o->prompt != NULL) + (o->prompts != NULL) + o->chat + (o->serve > 0) + (o->score != NULL) +
          (o->check_causal != NULL) >
      1)
    return "--prompt, --prompts, --chat, --serve, --score or --check-causal, not several";
  if (o->system && !o->chat) return "--system wants --chat";
  if ((o->host || o->token_file || o->queue >= 0) && !o->serve)
    return "--host, --token-file and --queue want --serve PORT";
  if ((o->chat || o->serve) && (o->output || o->top))
    return "--output and --top are for --prompt and --prompts";
  if (o->resume && (o->load || o->save)) return "--resume DIR is both --load DIR and --save DIR";
  if (o->resume && program->loss < 0)
    return "--resume goes on with a training; this program takes --weights";
  if (o->resume) o->save = o->resume;
  if (o->epochs && (o->sets_steps || !o->data[0]))
    return "--epochs N is instead of --steps, and wants --data FILE";
  if (o->on_nan == NAN_UNKNOWN) return "--on-nan is stop, rollback or skip";
  if (o->on_nan != NAN_GOES_ON && program->loss < 0) return "--on-nan: this program has no loss";
  if (o->on_nan == NAN_ROLLBACK && !o->save) return "--on-nan rollback wants --save DIR";
  if (o->on_nan == NAN_SKIP && program->grad_norm < 0)
    return "--on-nan skip wants the norm of the gradients, by which it knows such a step: clip in "
           "the "
           "plan";
  if (o->overwrite && !o->save) return "--overwrite wants --save DIR";
  if (o->max_time > 0 && (!o->save || program->loss < 0))
    return "--max-time wants --save DIR or --resume DIR of a training";
  if (o->weights && o->load) return "--weights and --load: a checkpoint has its own parameters";
  if ((o->ignore[0] || o->allow_missing[0]) && !o->weights && !program->weights)
    return "--ignore and --allow-missing want --weights";
  if (o->adapter && o->load) return "--adapter and --load: a checkpoint has its own adapters";
  if (o->export_adapter && !program->adapter)
    return "--export-adapter: this program has no adapters: lora in its plan";
  if (o->verify &&
      (o->weights || o->load || o->data[0] || o->save || o->resume || o->export_to || o->metrics))
    return "--verify looks at a checkpoint, and nothing else";
  if (o->evaluate &&
      (o->data[0] || o->resume || o->sets_steps || o->epochs || (o->save && program->loss >= 0)))
    return "--evaluate FILE trains nothing: it goes with --weights or --load";
  const bool validates = o->validate[0] || program->validation_data;
  if (o->validate[0] && !o->evaluate && program->loss < 0)
    return "--validate: this program has no loss";
  if ((o->validate_every || o->validate_steps) && !validates)
    return "--validate-every and --validate-steps want --validate FILE";
  if (o->best && !validates) return "--best wants --validate FILE";
  if (o->stop_after && !validates) return "--stop-after wants --validate FILE";
  if (o->dry_run && o->verify) return "--verify looks at a checkpoint, and nothing else";
  if (o->keep_best && !validates) return "--keep best wants --validate FILE";
  if ((o->keep_best || o->keep) && !o->save) return "--keep wants --save DIR";
  if (o->save_every && !o->save) return "--save-every wants --save DIR";
  if (o->ema && !keeps_average())
    return "--ema: this program keeps no moving average of its weights: ema = 0.999 in train{}";
  if (o->ema && !o->export_to && !o->export_adapter && !validates)
    return "--ema wants --export, --export-adapter or --validate";
  if (o->shard_bytes && !o->save && !o->export_to) return "--shard-bytes wants --save or --export";
  if (o->graph && (o->profile || o->stragglers))
    return "--profile and --stragglers take a step apart, --graph makes it one";
  if (o->stragglers && program->loss < 0) return "--stragglers: this program has no steps";
  if (o->tokens && !o->data[0]) return "--tokens wants --data FILE";
  if (o->tokens && strcmp(o->tokens, "bytes") != 0 && strcmp(o->tokens, "uint16") != 0 &&
      strcmp(o->tokens, "uint32") != 0)
    return "--tokens is bytes, uint16 or uint32";
  if (o->load && program->loss < 0)
    return "--load goes on with a training; this program takes --weights";
  if (!o->weights && !o->load && !o->verify) o->weights = program->weights;
  return NULL;
}

bool options_read(struct options *o, int argc, char **argv, bool says)
{
  static const struct option known[] = {
      {"steps", required_argument, NULL, 's'},
      {"epochs", required_argument, NULL, 'c'},
      {"log-every", required_argument, NULL, 'l'},
      {"save-every", required_argument, NULL, 'v'},
      {"shard-bytes", required_argument, NULL, 'b'},
      {"peak-tflops", required_argument, NULL, 'p'},
      {"weights", required_argument, NULL, 'w'},
      {"ignore", required_argument, NULL, 'i'},
      {"allow-missing", required_argument, NULL, 'L'},
      {"data", required_argument, NULL, 'd'},
      {"tokens", required_argument, NULL, 't'},
      {"validate", required_argument, NULL, 'a'},
      {"evaluate", required_argument, NULL, 'q'},
      {"best", required_argument, NULL, 'Y'},
      {"validate-every", required_argument, NULL, 'y'},
      {"validate-steps", required_argument, NULL, 'z'},
      {"keep", required_argument, NULL, 'k'},
      {"stop-after", required_argument, NULL, 'x'},
      {"deadline", required_argument, NULL, 'D'},
      {"metrics", required_argument, NULL, 'm'},
      {"tensorboard", required_argument, NULL, 'B'},
      {"logs", required_argument, NULL, 'G'},
      {"stragglers", no_argument, NULL, 'Z'},
      {"dry-run", no_argument, NULL, 'u'},
      {"load", required_argument, NULL, 'r'},
      {"save", required_argument, NULL, 'o'},
      {"resume", required_argument, NULL, 'R'},
      {"overwrite", no_argument, NULL, 'O'},
      {"on-nan", required_argument, NULL, 'N'},
      {"save-at-once", no_argument, NULL, 'S'},
      {"max-time", required_argument, NULL, 'T'},
      {"export", required_argument, NULL, 'e'},
      {"adapter", required_argument, NULL, 'A'},
      {"export-adapter", required_argument, NULL, 'E'},
      {"ema", no_argument, NULL, 'M'},
      {"verify", required_argument, NULL, 'V'},
      {"no-verify", no_argument, NULL, 'n'},
      {"graph", no_argument, NULL, 'g'},
      {"profile", no_argument, NULL, 'f'},
      {"prompt", required_argument, NULL, PROMPT},
      {"prompts", required_argument, NULL, PROMPTS},
      {"output", required_argument, NULL, OUTPUT_TO},
      {"encode", required_argument, NULL, ENCODE},
      {"score", required_argument, NULL, SCORE},
      {"check-causal", required_argument, NULL, CHECK_CAUSAL},
      {"tokenizer", required_argument, NULL, TOKENIZER},
      {"temperature", required_argument, NULL, TEMPERATURE},
      {"top-p", required_argument, NULL, TOP_P},
      {"min-p", required_argument, NULL, MIN_P},
      {"repetition-penalty", required_argument, NULL, PENALTY},
      {"top-k", required_argument, NULL, TOP_K},
      {"top", required_argument, NULL, TOP},
      {"seed", required_argument, NULL, SEED},
      {"greedy", no_argument, NULL, GREEDY},
      {"raw", no_argument, NULL, RAW},
      {"stop", required_argument, NULL, STOP},
      {"chat", no_argument, NULL, CHAT},
      {"system", required_argument, NULL, SYSTEM},
      {"serve", required_argument, NULL, SERVE},
      {"host", required_argument, NULL, HOST},
      {"token-file", required_argument, NULL, TOKEN_FILE},
      {"queue", required_argument, NULL, QUEUE},
      {"help", no_argument, NULL, 'h'},
      {0},
  };
  int option, index = 0;
  *o = (struct options){.steps = program->steps,
                        .log_every = 1,
                        .deadline = DEADLINE,
                        .temperature = -1,
                        .top_p = -1,
                        .min_p = -1,
                        .repetition_penalty = -1,
                        .top_k = -1,
                        .queue = -1};
  opterr = says;
  while ((option = getopt_long(argc, argv, "", known, &index)) != -1) {
    if (option == '?') return false; // getopt has reported it
    if (read_option(o, option)) continue;
    if (says) fprintf(stderr, "--%s %s: not a number that it can be\n", known[index].name, optarg);
    return false;
  }
  const char *wrong = optind < argc ? "what is this?" : contradiction(o);
  if (wrong && says)
    fprintf(stderr, "%s%s%s\n", optind < argc ? argv[optind] : "", optind < argc ? ": " : "",
            wrong);
  return !wrong;
}

void options_help(void)
{
  fputs(HELP, stdout);
  fputs(program->generation ? HELP_OF_GENERATING : HELP_OF_TRAINING, stdout);
  fputs(HELP_OF_RUNNING, stdout);
  printf("\nThe plan's own last step is %d.\n", program->steps);
}
