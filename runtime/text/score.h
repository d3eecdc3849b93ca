// SPDX-License-Identifier: MIT
// Texts that are given whole, and what the model makes of them: --score and --check-causal.
#ifndef TEXT_SCORE_H
#define TEXT_SCORE_H

#include "base/failure.h"
#include "base/options.h"
#include "text/tokenizer/tokenizer.h"

// Rank 0, after jobs_open. --score: writes a line of JSON for each line of the file, {"text"},
// {"ids"}, or {"prompt", "completion"}. It has the natural logarithm of each token's probability
// behind those before it, and their sum: of the completion, if there is one. False, and why.
bool text_score(const struct options *o, const struct tokenizer *tokenizer, struct failure *why);

// Rank 0, after jobs_open. --check-causal: runs each text in pieces of several sizes and token by
// token, and reports how far the logits are apart. False, and why; also if a token that is best in
// one way is not in another, and not as good as it.
bool text_check_causal(const struct options *o, const struct tokenizer *tokenizer,
                       struct failure *why);

#endif
