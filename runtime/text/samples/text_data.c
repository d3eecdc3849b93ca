// SPDX-License-Identifier: MIT
// A program of its own, beside the ranks of a training on tokens: it makes samples of conversations
// and texts. run.sh calls it for --data FILE.jsonl.
//
//   text_data TOKENIZER answers|all SEQUENCE VOCABULARY INPUT TARGET TO FILE...
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/options.h"
#include "text/chat/settings.h"
#include "text/chat/text_file.h"
#include "text/samples/samples_file.h"

enum { TOKENIZER = 1, LEARN, SEQUENCE, VOCABULARY, INPUT, TARGET, TO, FILES };

// The special token of tokenizer_config.json: a text, or an object with it. "": there is none.
static char *special_token(const char *folder, const char *name)
{
  char path[PATH_MAX];
  size_t length;
  struct failure unused;
  json_error_t error;
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  char *text = whole_file(path, &length, &unused);
  json_t *config = text ? json_loadb(text, length, JSON_DECODE_INT_AS_REAL, &error) : NULL;
  const json_t *value = json_object_get(config, name);
  if (json_is_object(value)) value = json_object_get(value, "content");
  char *token = strdup(json_is_string(value) ? json_string_value(value) : "");
  json_decref(config);
  free(text);
  return token;
}

// The text of the token that ends a turn.
static char *turn_end(const struct tokenizer *t, const struct chat *c)
{
  struct failure unused;
  struct bytes text = {0};
  const int id = c ? settings_turn_end(t, c) : -1;
  if (id >= 0 && !tokenizer_decode(t, &id, 1, false, &text, &unused)) text.count = 0;
  char *token = strndup(text.at ? text.at : "", text.count);
  free_bytes(&text);
  return token;
}

static bool make(char **argv, struct failure *why)
{
  const struct options options = {.tokenizer = argv[TOKENIZER]};
  struct tokenizer *tokenizer = NULL;
  struct chat *chat = NULL;
  struct failure no_template;
  if (!settings_tokenizer(&tokenizer, &options, why)) return false;
  settings_chat(&chat, &options, &no_template); // conversations say that there is none
  char *ends_turn = turn_end(tokenizer, chat), *end = special_token(argv[TOKENIZER], "eos_token"),
       *pad = special_token(argv[TOKENIZER], "pad_token");
  const struct sampling_rules rules = {.tokenizer = tokenizer,
                                       .chat = chat,
                                       .turn_end = ends_turn,
                                       .end = end,
                                       .learns_all = strcmp(argv[LEARN], "all") == 0};
  const int padding = *pad ? tokenizer_id(tokenizer, pad) : -1;
  const struct samples_file file = {.rules = &rules,
                                    .files = (const char *const *)argv + FILES,
                                    .input = argv[INPUT],
                                    .target = argv[TARGET],
                                    .to = argv[TO],
                                    .sequence = strtol(argv[SEQUENCE], NULL, 10),
                                    .vocabulary = strtol(argv[VOCABULARY], NULL, 10),
                                    .pad = padding > 0 ? padding : 0};
  const bool ok = ends_turn && end && pad ? samples_write(&file, why)
                                          : failed(why, "out of memory for the tokenizer");
  free(ends_turn);
  free(end);
  free(pad);
  chat_close(chat);
  tokenizer_close(tokenizer);
  return ok;
}

int main(int argc, char **argv)
{
  struct failure why = {""};
  json_memory_start();
  if (argc > FILES && make(argv, &why)) return EXIT_SUCCESS;
  fprintf(stderr, "run.sh: error: %s\n", argc > FILES ? why.text : "text_data: run.sh calls it");
  return EXIT_FAILURE;
}
