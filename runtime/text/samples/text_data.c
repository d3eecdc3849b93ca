// SPDX-License-Identifier: MIT
// A program of its own, beside the ranks of a training on tokens: it makes samples of conversations
// and texts. run.sh calls it for --data FILE.jsonl.
//
//   text_data TOKENIZER answers|all ROWS SEQUENCE VOCABULARY INPUT TARGET ENDS RATING BATCH TO
//   FILE...
//
// ENDS: "-": samples are not packed. RATING: "-": lines have no rating.
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/options.h"
#include "text/chat/settings.h"
#include "text/samples/samples_file.h"

enum {
  TOKENIZER = 1,
  LEARN,
  ROWS,
  SEQUENCE,
  VOCABULARY,
  INPUT,
  TARGET,
  ENDS,
  RATING,
  BATCH,
  TO,
  FILES
};

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
  char *ends_turn = NULL, *end = NULL, *pad = NULL;
  bool ok = settings_tokenizer(&tokenizer, &options, why) &&
            settings_special_token(&end, &options, "eos_token", why) &&
            settings_special_token(&pad, &options, "pad_token", why);
  if (ok) {
    settings_chat(&chat, &options, &no_template); // conversations say that there is none
    ends_turn = turn_end(tokenizer, chat);
    ok = ends_turn || failed(why, "out of memory for the tokenizer");
  }
  if (ok) {
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
                                      .ends = strcmp(argv[ENDS], "-") == 0 ? NULL : argv[ENDS],
                                      .rating =
                                          strcmp(argv[RATING], "-") == 0 ? NULL : argv[RATING],
                                      .batch = strtol(argv[BATCH], NULL, 10),
                                      .to = argv[TO],
                                      .rows = strtol(argv[ROWS], NULL, 10),
                                      .sequence = strtol(argv[SEQUENCE], NULL, 10),
                                      .vocabulary = strtol(argv[VOCABULARY], NULL, 10),
                                      .pad = padding > 0 ? padding : 0};
    ok = samples_write(&file, why);
  }
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
