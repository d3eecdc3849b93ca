/* closed_form.c: the time and the memory of a candidate, by closed forms: they order candidates,
   and decide none.

   The figures of the model are tpgen's own, of a program for one device with one sample: they are
   divided by the ranks, and what moves between ranks is added. A ring takes the slower of the links
   within a node and of the cards that its ranks there share. */
#include "search/search.h"

#include <math.h>
#include <string.h>

static const double INSIDE = 0.77, CARD = 0.9, START = 15e-6, HIDDEN = 0.9;

struct links {
  double bandwidth, latency;
};

/* Of so many ranks that are `stride` apart. */
static struct links links_over(const struct search_space *s, double ranks, double stride)
{
  const double inside = s->intra.bandwidth * INSIDE;
  if (ranks <= 1) return (struct links){inside, 0};
  if (ranks * stride <= s->node) return (struct links){inside, START + ranks * s->intra.latency};
  const double in_node = fmax(1, s->node / stride);
  const double cards = s->inter.bandwidth * CARD * s->cards / s->node * in_node;
  return (struct links){fmin(inside, cards),
                        START + ranks * s->intra.latency + ranks / in_node * s->inter.latency};
}

/* A gather or a reduce-scatter of so many bytes in all, and as many starts. */
static double moving(struct links l, double ranks, double bytes, double starts)
{
  return ranks <= 1 ? 0 : bytes * (ranks - 1) / ranks / l.bandwidth + starts * l.latency;
}

static bool has_value(const struct search_space *s, const struct candidate *c,
                      enum search_kind kind, const char *value)
{
  const int at = s->of_kind[kind];
  return at != NONE && !strcmp(value_or_usual(s, c, at), value);
}

static double stages_of_rank(const struct search_space *s, const struct candidate *c)
{
  const int at = s->of_kind[SEARCH_SCHEDULE], per_rank = s->of_kind[SEARCH_STAGES_OF_RANK];
  const double given = per_rank == NONE ? 0 : (double)s->at[per_rank].number[c->v[per_rank]];
  const char *schedule = at == NONE ? "1f1b" : value_or_usual(s, c, at);
  return given > 0 ? given : is_schedule(schedule) ? stages_implied(schedule) : 1;
}

/* Whether gradients of weights fill what would be idle. */
static bool fills_with_weights(const struct search_space *s, const struct candidate *c)
{
  return has_value(s, c, SEARCH_SCHEDULE, "interleaved_zero_bubble") ||
         has_value(s, c, SEARCH_SCHEDULE, "zbv_zero_bubble") ||
         has_value(s, c, SEARCH_SCHEDULE, "dualpipe_v");
}

/* The time of the rank that has most to do, over an even share. Stages have whole layers, and the
   last one has what comes behind them, too. A rank of several stages may have an even share of all
   its layers. Still it waits for ranks that have a layer more in the same turn: for the part of the
   difference that simulated steps had. Gradients of weights fill a half of that. */
static double uneven_share(const struct search_space *s, const struct candidate *c,
                           const struct model_figures *f)
{
  const double ranks = (double)ranks_in(s, c, SEARCH_STAGES), of_rank = stages_of_rank(s, c),
               stages = ranks * of_rank, inside = f->batch_seconds - f->outside_seconds;
  if (ranks <= 1 || !f->layers || inside <= 0) return 1;
  const double outside = f->outside_seconds / inside * f->layers; /* in layers */
  const double last = 1 + outside, share = (f->layers + outside) / stages;
  const double others = last > share ? (f->layers - 1) / (stages - 1) : share;
  const double whole = ceil(others - 1e-9);
  if (of_rank <= 1) return fmax(last, whole) / share;
  static const double WAITED = 0.7;
  const double waited = fills_with_weights(s, c) ? WAITED / 2 : WAITED;
  const double each = others + waited * (whole - others);
  return ((of_rank - 1) * each + fmax(last, each)) / (of_rank * share);
}

/* The idle micro-batches of a rank, and those in flight, for each of its stages' share.
   for_weights: those whose activations wait for the gradients of weights, also what is made again
   before. */
static void idle_and_in_flight(const struct search_space *s, const struct candidate *c,
                               double *idle, double *in_flight, double *for_weights)
{
  const double p = (double)ranks_in(s, c, SEARCH_STAGES), m = (double)microbatches_in(s, c);
  const double stages = stages_of_rank(s, c);
  *idle = p - 1;
  *in_flight = fmin(m, p);
  if (has_value(s, c, SEARCH_SCHEDULE, "gpipe")) *in_flight = m;
  if (has_value(s, c, SEARCH_SCHEDULE, "interleaved_1f1b")) {
    *idle = (p - 1) / stages;
    *in_flight = fmin(m, p + (p - 1) / stages);
  } else if (has_value(s, c, SEARCH_SCHEDULE, "looped_bfs")) {
    *idle = (p - 1) / stages;
    *in_flight = m;
  } else if (has_value(s, c, SEARCH_SCHEDULE, "interleaved_zero_bubble")) {
    *idle = (p - 1) / stages / 2;
    *in_flight = fmin(m, p + (p - 1) / stages);
    *for_weights = fmin(m, p);
  } else if (has_value(s, c, SEARCH_SCHEDULE, "zbv_zero_bubble")) {
    *idle = (p - 1) / 4;
    *for_weights = fmin(m, p);
  } else if (has_value(s, c, SEARCH_SCHEDULE, "dualpipe_v")) {
    *idle = (p - 1) / 2;
    *in_flight = fmin(m, p + 1);
  }
}

/* How much slower ranks are that two nodes share, with a card each, than those of one node, as
   those of the programs of few ranks were. */
static double across_nodes(const struct search_space *s)
{
  const double card = s->inter.bandwidth * CARD * s->cards / s->node;
  return fmax(1, s->intra.bandwidth * INSIDE / card);
}

/* The factors of both kinds of ranks that programs were made for; of bytes for this value of
   recompute. */
struct rank_factors {
  double seconds, bytes;
};

static struct rank_factors factors_of(const struct search_space *s, const struct probes *p,
                                      const struct candidate *c, int again)
{
  static const enum search_kind kind[2] = {SEARCH_TENSOR, SEARCH_SEQUENCES};
  struct rank_factors f = {1, 1};
  for (int k = 0; k < 2; k++) {
    const int at = s->of_kind[kind[k]];
    if (at == NONE) continue;
    const int64_t ranks = s->at[at].number[c->v[at]];
    const double factor = p->seconds[k][c->v[at]];
    const bool straddles = ranks < s->node && s->node % ranks && !s->is_machine;
    if (factor > 0) f.seconds *= 1 + (factor - 1) * (straddles ? across_nodes(s) : 1);
    f.bytes *= 1 + p->bytes[again][k] * ((double)s->at[at].number[c->v[at]] - 1);
  }
  return f;
}

/* The threads of one rank of a machine are divided among its ranks. */
static double threads_among_ranks(const struct search_space *s, const struct candidate *c)
{
  static const enum search_kind kind[] = {SEARCH_COPIES, SEARCH_SHARDS, SEARCH_TENSOR,
                                          SEARCH_RANKS,  SEARCH_STAGES, SEARCH_SEQUENCES};
  double ranks = 1;
  for (size_t k = 0; s->is_machine && k < sizeof kind / sizeof *kind; k++)
    ranks *= (double)ranks_in(s, c, kind[k]);
  return ranks;
}

void choose_way(const struct search_space *s, struct candidate *c, double factor)
{
  const double most = 0.95 * (double)s->memory / threads_among_ranks(s, c);
  const bool fits = !s->memory || c->way[true].bytes * factor <= most;
  const bool sums = fits && c->way[true].seconds < c->way[false].seconds;
  c->seconds = c->way[sums].seconds;
  c->bytes = c->way[sums].bytes;
}

void estimate(const struct search_space *s, const struct probes *p, struct candidate *c)
{
  const double copies = (double)ranks_in(s, c, SEARCH_COPIES),
               shards = (double)ranks_in(s, c, SEARCH_SHARDS),
               tensor =
                   (double)ranks_in(s, c, SEARCH_TENSOR) * (double)ranks_in(s, c, SEARCH_RANKS),
               stages = (double)ranks_in(s, c, SEARCH_STAGES),
               sequences = (double)ranks_in(s, c, SEARCH_SEQUENCES),
               experts = (double)ranks_in(s, c, SEARCH_EXPERTS), m = (double)microbatches_in(s, c);
  const int again = s->of_kind[SEARCH_RECOMPUTE], zero_at = s->of_kind[SEARCH_ZERO];
  const int probed = again == NONE ? 0 : c->v[again] % MOST_PROBED;
  const struct model_figures *f = &p->of[probed];
  const struct rank_factors factors = factors_of(s, p, c, probed);
  const double zero = zero_at == NONE ? 0 : (double)s->at[zero_at].number[c->v[zero_at]];
  const double data = copies * shards, batch = s->batch ? (double)s->batch : data * m;
  const double samples = ceil(batch / (data * m));
  const double gathers = copies == 1 || shards > 1 ? shards * sequences : 1;
  const double layers = f->layers ? ceil(f->layers / stages) : 1;
  const double uneven = uneven_share(s, c, f);
  double idle = 0, in_flight = 1, for_weights = 0;
  if (stages > 1) idle_and_in_flight(s, c, &idle, &in_flight, &for_weights);

  const struct links of_shards = links_over(s, gathers, tensor),
                     of_experts = links_over(s, experts, tensor * sequences),
                     of_rest = links_over(s, data / (gathers / sequences > 1 ? shards : 1),
                                          tensor * sequences * (gathers > 1 ? shards : 1)),
                     of_stages = links_over(s, 2, s->devices / stages);
  const double x = f->input * samples / sequences; /* what a layer hands on */
  const double of_samples = p->fixed + (1 - p->fixed - p->once) * samples;
  const double threads = threads_among_ranks(s, c); /* the factors know it */
  const double divided = s->is_machine ? data * stages : 1;
  const double of_one =
      f->batch_seconds * divided / (tensor * sequences * stages) * uneven * factors.seconds;
  const double computing = of_one * of_samples, once = of_one * p->once;
  const bool recomputes = again != NONE && c->v[again] > 0;
  /* Rows of tokens travel to the ranks of their experts and back, over the card of their rank. */
  const double card = s->inter.bandwidth * CARD * s->cards / s->node;
  const double own = experts * tensor * sequences <= s->node
                         ? s->intra.bandwidth * INSIDE
                         : fmin(s->intra.bandwidth * INSIDE, card);
  const double of_rows =
      experts <= 1 ? 0 : f->places * x * (experts - 1) / experts / own + of_experts.latency;
  const double within = layers * (recomputes ? 6 : 4) * of_rows;
  const double part = tensor * stages,
               expert_part = f->parameters > 0 ? f->experts / f->parameters : 0;
  const double of_all = (1 - expert_part) + expert_part / experts;
  const double gather = moving(of_shards, gathers, f->compute_bytes / part * of_all, layers);
  const double reduce = moving(of_shards, gathers, f->gradient_bytes / part * of_all, layers);
  const double rest =
      moving(of_rest, copies,
             2 * f->gradient_bytes / (part * gathers / (gathers > 1 ? sequences : 1)), layers);
  const double busy = computing + within;
  const double sends = stages > 1 ? stages_of_rank(s, c) * x / tensor / of_stages.bandwidth : 0;
  const double whole = part * gathers, state_ranks = whole * (zero > 0 ? data : 1);
  double held = f->parameter_memory / whole + f->state_memory / state_ranks +
                (f->activations * in_flight * factors.bytes +
                 p->of[0].activations * for_weights * factors_of(s, p, c, 0).bytes) *
                    samples / (tensor * sequences * stages) * uneven;
  if (gathers > 1 && f->layers) held += 2 * f->compute_bytes / tensor / f->layers;

  const bool cuts_states = zero > 0 && copies > 1 && gathers <= 1;
  for (int sums = 0; sums < 2; sums++) {
    const bool reduces_each = !sums && m > 1 && (gathers > 1 || cuts_states);
    const double of_sum = gathers > 1 ? reduce : rest / 2; /* and the other half after the update */
    const double once_reduced = reduces_each ? rest - (gathers > 1 ? 0 : of_sum) : reduce + rest;
    const double each = 2 * gather + (reduces_each ? of_sum : 0);
    /* Stages reduce sums after the last micro-batch. */
    const double beside = stages > 1 ? 0 : once_reduced;
    const double alone = stages > 1 ? once_reduced : 0;
    const double part_exposed =
        stages > 1 ? 1 : 0.03; /* a stage has few layers to hide it behind */
    const double summed = whole * (cuts_states ? copies : 1);
    const double adding =
        m > 1 ? m * f->update_seconds * ADDING / (reduces_each ? summed : part) : 0;
    const double exposed = (stages > 1 ? 0 : fmax(0, each - HIDDEN * busy) * m) +
                           part_exposed * each * m + fmax(0, beside - 0.6 * HIDDEN * busy) +
                           0.05 * beside + alone;
    const double of_gradients = reduces_each ? summed
                                : m > 1      ? part
                                             : whole * (zero > 1 ? data : 1);
    c->way[sums].seconds = (m + idle) * busy + once + m * sends * 0.2 + exposed + adding +
                           f->update_seconds * threads / state_ranks;
    c->way[sums].bytes = held + f->gradient_memory / of_gradients;
  }
  choose_way(s, c, 1);
}
