// SPDX-License-Identifier: MIT
// Products of bfloat16 matrices on AMX, with float32 sums.
//
// Threads pack a part of the right operand together, in the order in which it is read. Then each
// takes rows of the left one, 32 at a time, and some terms of these, a chunk: they stay in the
// first cache while the part goes past them. The left operand is read as it is stored, or packed
// first if that is transposed, has rows far apart, or at an edge. The order in which an element is
// summed depends only on the number of terms.
#ifndef CPU_AMX_BF16_H
#define CPU_AMX_BF16_H

#include "cpu/kernels/amx_tiles.h"
#include "cpu/kernels/products.h"

#ifdef HAS_AMX
#include <string.h>
#include "base/of_model.h"

enum {
  AMX_TERMS = 512, // of a chunk, at most: 32 rows of it are in the first cache
  AMX_CHUNKS = 2,  // of a part
  AMX_PANELS = 16, // of a part, each of 32 columns
  AMX_PANEL_TILES = 2 * AMX_TERMS / TILE_TERMS, // of a chunk
  AMX_ROWS = 512,                               // whose sums wait for the next part
  AMX_BLOCK = AMX_SIDE * AMX_SIDE,              // elements
  AMX_APART = 1024,   // elements between rows that are read as they are stored
  AMX_LEAST = 1 << 18 // multiply-adds, below which a product is not worth it
};

// The number of terms of a chunk, so that all chunks of k terms are about the same.
static inline int amx_chunk(int k)
{
  const int chunks = (k + AMX_TERMS - 1) / AMX_TERMS;
  return ((k + chunks - 1) / chunks + TILE_TERMS - 1) / TILE_TERMS * TILE_TERMS;
}

// Some lines of a matrix in a room of lines of 32, with zeros around them.
static inline struct stored amx_in_room(bf16 *room, struct stored from, int rows, int columns)
{
  const int lines = from.transposed ? columns : rows, length = from.transposed ? rows : columns;
  memset(room, 0, AMX_BLOCK * sizeof *room);
  for (int i = 0; i < lines; i++)
    memcpy(room + i * AMX_SIDE, from.at + i * from.ld, (size_t)length * sizeof *room);
  return (struct stored){room, AMX_SIDE, from.transposed};
}

static inline int amx_least(long a, long b)
{
  return (int)(a < b ? a : b);
}

// Packs at most 32 columns of b.
static inline void amx_pack_panel(struct amx_tile *to, struct stored b, int columns, int terms)
{
  bf16 room[AMX_BLOCK];
  for (int c = 0; c < terms; c += TILE_TERMS, to += 2) {
    struct stored some = stored_from(b, c, 0);
    if (columns < AMX_SIDE || terms - c < TILE_TERMS)
      some = amx_in_room(room, some, amx_least(terms - c, TILE_TERMS), columns);
    if (some.transposed) {
      amx_transpose(to, some.at, some.ld);
      amx_transpose(to + 1, some.at + TILE_ROWS * some.ld, some.ld);
    } else {
      amx_pair_rows(to, some.at, some.ld);
    }
  }
}

// Packs at most 32 rows of a; the rows of the copy are AMX_TERMS apart.
static inline void amx_pack_rows(bf16 *to, struct stored a, int rows, int terms)
{
  bf16 room[AMX_BLOCK];
  for (int c = 0; c < terms; c += TILE_TERMS) {
    struct stored some = stored_from(a, 0, c);
    if (rows < AMX_SIDE || terms - c < TILE_TERMS)
      some = amx_in_room(room, some, rows, amx_least(terms - c, TILE_TERMS));
    if (some.transposed)
      amx_turn(to + c, AMX_TERMS, some.at, some.ld);
    else
      for (int i = 0; i < AMX_SIDE; i++)
        memcpy(to + i * AMX_TERMS + c, some.at + i * some.ld, TILE_TERMS * sizeof *to);
  }
}

// A block's sums to their place in the result; added to it if `add` is true.
static inline void amx_put(const struct bf16_product *p, long at, const float *sum, int rows,
                           int columns, bool add)
{
  for (int i = 0; i < rows; i++, sum += AMX_SIDE, at += p->ldc) {
    const __mmask16 left = (__mmask16)(columns >= 16 ? 0xffff : (1 << columns) - 1);
    const __mmask16 right = (__mmask16)(columns >= 32   ? 0xffff
                                        : columns <= 16 ? 0
                                                        : (1 << (columns - 16)) - 1);
    __m512 x = _mm512_loadu_ps(sum), y = _mm512_loadu_ps(sum + 16);
    if (p->c) {
      const __mmask32 both = (__mmask32)right << 16 | left;
      bf16 *const to = p->c + at;
      if (add) {
        const __m512i old = _mm512_maskz_loadu_epi16(both, to);
        const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(old));
        const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(old, 1));
        x = _mm512_add_ps(x, (__m512)_mm512_slli_epi32(low, 16));
        y = _mm512_add_ps(y, (__m512)_mm512_slli_epi32(high, 16));
      }
      _mm512_mask_storeu_epi16(to, both, (__m512i)_mm512_cvtne2ps_pbh(y, x));
    } else {
      float *const to = p->wide + at;
      if (add) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(left, to));
      if (add) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(right, to + 16));
      _mm512_mask_storeu_ps(to, left, x);
      _mm512_mask_storeu_ps(to + 16, right, y);
    }
  }
}

static inline struct stored amx_left(const struct bf16_product *p, int of)
{
  return (struct stored){p->a + of * p->step_a, p->lda, p->a_is == 't'};
}

static inline struct stored amx_right(const struct bf16_product *p, int of)
{
  return (struct stored){p->b + of * p->step_b, p->ldb, p->b_is == 't'};
}

// A part of the right operand: columns from j on and terms from c on, in chunks.
struct amx_part {
  const struct bf16_product *p;
  int of, j, c, columns, terms, chunk;
  struct amx_tile *panels; // by chunk, and by column
  float *kept;             // the sums of AMX_ROWS rows, from `first` on; NULL: none wait
  int first, end;          // rows
};

static inline int amx_chunks(const struct amx_part *part)
{
  return (part->terms + part->chunk - 1) / part->chunk;
}

static inline struct amx_tile *amx_panel(const struct amx_part *part, int chunk, int panel)
{
  return part->panels + ((long)chunk * AMX_PANELS + panel) * AMX_PANEL_TILES;
}

// Some terms of 32 rows of the left operand; `copy` is room for them.
static inline struct stored amx_rows(bf16 *copy, struct stored a, int rows, int terms)
{
  if (rows == AMX_SIDE && terms % TILE_TERMS == 0 && !a.transposed && a.ld <= AMX_APART) return a;
  amx_pack_rows(copy, a, rows, terms);
  return (struct stored){copy, AMX_TERMS, false};
}

// The product of 32 rows, from i on, and of some panels of the part.
static inline void amx_rows_of(const struct amx_part *part, int i, int panel, int panels)
{
  static _Thread_local bf16 copy[AMX_SIDE * AMX_TERMS] __attribute__((aligned(64)));
  static _Thread_local float room[AMX_PANELS * AMX_BLOCK] __attribute__((aligned(64)));
  const struct bf16_product *const p = part->p;
  const int rows = amx_least(part->end - i, AMX_SIDE), last = amx_chunks(part) - 1;
  float *const sums =
      part->kept ? part->kept + (long)(i - part->first) * AMX_PANELS * AMX_SIDE : room;
  const bool ends = !part->kept || part->c + part->terms == p->k;
  const bool wide = part->c > 0 && !part->kept; // earlier parts are in the result
  for (int n = 0; n <= last; n++) {
    const int c = n * part->chunk, terms = amx_least(part->terms - c, part->chunk);
    const struct stored a =
        amx_rows(copy, stored_from(amx_left(p, part->of), i, part->c + c), rows, terms);
    for (int x = panel; x < panel + panels; x++) {
      const int column = x * AMX_SIDE;
      amx_sum(sums + x * AMX_BLOCK, AMX_SIDE, a.at, a.ld, amx_panel_pairs(amx_panel(part, n, x)),
              (terms + TILE_TERMS - 1) / TILE_TERMS, n > 0 || (part->kept && part->c > 0), false,
              true, true);
      if (n == last && ends)
        amx_put(p, part->of * p->step_c + i * p->ldc + part->j + column, sums + x * AMX_BLOCK, rows,
                amx_least(part->columns - column, AMX_SIDE), p->add || wide);
    }
  }
}

// By all threads of a team.
static inline void amx_part_of(const struct amx_part *part, int threads)
{
  const struct bf16_product *const p = part->p;
  const int panels = (part->columns + AMX_SIDE - 1) / AMX_SIDE, chunks = amx_chunks(part);
  const int down = (part->end - part->first + AMX_SIDE - 1) / AMX_SIDE;
  int each = panels; // that a thread takes with its rows
  while (each > 1 && (long)down * ((panels + each - 1) / each) < 2L * threads)
    each = (each + 1) / 2;
  const int across = (panels + each - 1) / each;
#pragma omp for schedule(static)
  for (int t = 0; t < panels * chunks; t++) {
    const int x = t / chunks, n = t % chunks, c = n * part->chunk;
    amx_pack_panel(amx_panel(part, n, x),
                   stored_from(amx_right(p, part->of), part->c + c, part->j + x * AMX_SIDE),
                   amx_least(part->columns - x * AMX_SIDE, AMX_SIDE),
                   amx_least(part->terms - c, part->chunk));
  }
#pragma omp for schedule(static)
  for (int t = 0; t < down * across; t++) {
    const int x = t % across * each;
    amx_rows_of(part, part->first + t / across * AMX_SIDE, x, amx_least(panels - x, each));
  }
}

// All threads go over the parts.
static inline void amx_parts(const struct bf16_product *p, int threads)
{
  static OF_MODEL struct amx_tile room[AMX_CHUNKS * AMX_PANELS * AMX_PANEL_TILES];
  static OF_MODEL float kept[AMX_ROWS * AMX_PANELS * AMX_SIDE] __attribute__((aligned(64)));
  struct amx_part all = {.p = p, .panels = room, .chunk = amx_chunk(p->k)};
  // Sums of floats wait in the result.
  if (p->c && p->k > AMX_CHUNKS * AMX_TERMS) all.kept = kept;
  const int terms = all.chunk * AMX_CHUNKS, rows = all.kept ? AMX_ROWS : p->m;
#pragma omp parallel if (threads > 1)
  {
    struct amx_part part = all;
    amx_begin();
    for (part.of = 0; part.of < p->batch; part.of++)
      for (part.j = 0; part.j < p->n; part.j += AMX_PANELS * AMX_SIDE)
        for (part.first = 0; part.first < p->m; part.first += rows)
          for (part.c = 0; part.c < p->k; part.c += terms) {
            part.end = amx_least(part.first + (long)rows, p->m);
            part.columns = amx_least(p->n - part.j, AMX_PANELS * AMX_SIDE);
            part.terms = amx_least(p->k - part.c, terms);
            amx_part_of(&part, threads);
          }
    _tile_release();
  }
}

// Computes it by so many threads and returns true; false if another way is quicker, or there is no
// such unit. A result of bfloat16 is rounded once.
static inline bool multiply_by_amx(const struct bf16_product *p, int threads)
{
  if (p->m < TILE_ROWS || p->n < TILE_ROWS || p->k < TILE_TERMS || p->batch < 1 ||
      (long)p->m * p->n * p->k < AMX_LEAST || !may_use_amx())
    return false;
  amx_parts(p, threads);
  return true;
}
#endif

#endif
