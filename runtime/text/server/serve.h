// SPDX-License-Identifier: MIT
// A server: --serve.
#ifndef TEXT_SERVE_H
#define TEXT_SERVE_H

#include "base/failure.h"
#include "base/options.h"
#include "text/chat/settings.h"

// Before a server runs, on every rank: a signal that ends it is for rank 0, which then ends the
// others; they pass it on.
void serve_signals(bool leads);

// Rank 0, while the others follow: answers requests until SIGTERM or SIGINT. False, and why, if it
// cannot begin.
bool serve(const struct options *o, const struct text_settings *settings,
           const struct tokenizer *tokenizer, struct failure *why);

#endif
