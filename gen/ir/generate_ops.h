/* clang-format off */
/* generate_ops.h: a part of ops.h: operators of programs that generate: attention over caches, and
   products with weights as they are stored. */
/* Attention of tokens that go on where a cache ends, of r queries for each cached head: a rank may
   have any heads. b sequences have t new tokens each: the first is number `start` of sequence b,
   whose slot of the caches is the last input but one; -1: none, and the output is zero. Writes k
   and v into the caches, in place; then each token sees all tokens of its slot up to itself, of the
   last `window` if that is not 0. $s is the scale. */
OP(cached_attention, "b!grt!d!,bgt!d!,bgt!e!,n!gc!d!,n!gc!e!,b!,b!->b!grt!e!", "", no_grad,
   "window", "", "bgrtcd bgrtce", .type = "f32", .cheap = COSTLY)
/* The same where a value is the first numbers of its key: one cache has both. */
OP(cached_latent_attention, "b!grt!d!,bgt!d!,n!gc!d!,b!,b!->b!grt!e!", "", no_grad, "window", "",
   "bgrtcd bgrtce", .type = "f32", .cheap = COSTLY)
/* Attention over caches in p parts of the sequence, which ranks share: of each part the attention
   over its keys, and the logarithm of its rows' sums, -INFINITY where a row sees none. A pair for
   each part; maxima and sums along p merge them. */
OP(cached_attention_parts,
   "b!grt!d!,bgt!d!,bgt!e!,n!p@gc!d!,n!p@gc!e!,b!,b!->pb!grt!e!:f32,pb!grt!:f32", "", no_grad,
   "window", "", "bgrtpcd bgrtpce", .cheap = COSTLY)
/* The last tokens of each sequence and its t new ones: w - t that came before token number
   `start`, zeros before the text, and those. The cache has the last r tokens of a slot, token i at
   i % r, and gets the new ones: a cache of whole numbers, if they are. As above the last inputs are
   slot and start. */
OP(recent,             "b!t!d,n!r!d,b!,b!->b!w!d", "", no_grad, "", "", "", .type = "f32 a",
   .cheap = COSTLY)
/* The sum of all tokens of the sequence up to each of the new ones. The cache has the last r
   sums. */
OP(running_sum,        "b!t!d,n!r!d,b!,b!->b!t!d", "", no_grad, "", "", "", .type = "f32",
   .cheap = COSTLY)
/* The greatest of them, the smallest if `least` is 1, and its place in the sequence: as cummax. The
   cache has both of the last r tokens. */
OP(running_max,        "b!t!d,n!r!dp!,b!,b!->b!t!d:f32,b!t!d:i32", "", no_grad, "least", "", "",
   .cheap = COSTLY)
/* All tokens of each sequence, and zeros for those that it does not have yet. The cache has c
   tokens of a slot, and gets the new ones. Ranks may share the tokens. */
OP(all_tokens,         "b!t!d,n!c@d,b!,b!->b!c@d", "", no_grad, "", "", "", .type = "f32 a",
   .cheap = COSTLY)
/* A carry of a scan, between calls: the cache has that of each slot. The call begins with it, or
   with b where a text begins: token number `start` is 0. keep_state writes b, the carry behind the
   last token; c, the carry with which the call began, is made by then. Its result are the slots:
   nothing needs it. */
OP(recall_state,    "n!...,...,b!,b!->b!...", "", no_grad, "", "", "", .type = "f32",
   .cheap = COSTLY)
OP(keep_state,      "n!...,b!...,b!...,b!->b!:max", "", no_grad, "", "", "", .type = "f32",
   .cheap = COSTLY, .keeps = true)
/* The tokens of a whole text, of the type of the first input, which has those of one call:
   cut_time.c. The inputs are those of the two entries of a program that generates: tokens, slot,
   start and last of the one, tokens, slot and start of the other. `bfloat16`: the type of its
   caches; `over`: 1 + the dimension of the mesh whose ranks share their context, or 0. */
OP(whole_text,      "",                     "",             no_grad,            "bfloat16 over", "",
   "", .type = "a", .elements = ALL_OF_FIRST, .idle = true)
/* Products with weights that are only read: stored as bfloat16, or as blocks of 32 numbers of 8
   bits after a scale (runtime/base/weight_blocks.h). The weight of a `transposed` one is [in,
   out]. */
OP(linear_bf16,        "abk,nk->abn",           "a", no_grad, "", "", "*", .type = "f32",
   .takes_stored = true)
OP(linear_bf16_transposed, "abk,kn->abn",           "a", no_grad, "", "", "*", .type = "f32",
   .takes_stored = true)
OP(linear_int8,        "abgs32!,ngq!->abn",     "a", no_grad, "", "", "abgsn", .type = "f32",
   .takes_stored = true)
OP(linear_int8_transposed, "abk,kgq!->abgs32!",     "a", no_grad, "", "", "abkgs", .type = "f32",
   .takes_stored = true)
OP(embedding_int8, "v@gq!,ab->abgs32!:f32", "", no_grad, "", "", "", .takes_stored = true)
/* The numbers of a frozen weight in blocks. The second input of from_nf4 are the tables of the
   blocks; `begin`: the blocks of the file's tensor before those of this part. */
OP(from_int8,      "ngq!->ngs32!:f32",      "", no_grad, "", "", "",
   .cheap = CHEAP, .takes_stored = true)
OP(from_nf4,       "n@g@q!,t!->ngs64!:f32", "", no_grad, "begin", "", "",
   .cheap = CHEAP, .takes_stored = true)
