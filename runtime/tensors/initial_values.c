// SPDX-License-Identifier: MIT
// Elements by Philox, each for itself or, of orthogonal and sparse matrices, all of them at once.
#include "tensors/initial_values.h"

#include <math.h>
#include <stdlib.h>
#include "base/elements.h"
#include "base/philox.h"
#include "base/program.h"
#include "tensors/file_elements.h"

// ---- conversions -------------------------------------------------------------------------------

float draw_below(enum type type, double x, double limit)
{
  float y = (float)x;
  if (!((double)y < limit)) y = nextafterf((float)limit, -INFINITY);
  if (type != BF16) return y;
  bf16 half = float_to_bf16(y);
  if ((double)bf16_to_float(half) < limit) return bf16_to_float(half);
  bool zero = !(half & 0x7fff), negative = half & 0x8000;
  return bf16_to_float((bf16)(zero ? 0x8001 : negative ? half + 1 : half - 1));
}

// The nearest float, or bfloat16, that is within bounds, if there is one.
static float within(enum type type, double x, double low, double high)
{
  float y = draw_below(type, x, nextafter(high, INFINITY));
  return (double)y < low ? -draw_below(type, -x, nextafter(-low, INFINITY)) : y;
}

static void store(enum type type, float x, double exact, void *to, size_t i)
{
  switch (type) {
  case F32:
    ((float *)to)[i] = x;
    break;
  case BF16:
    ((bf16 *)to)[i] = float_to_bf16(x);
    break;
  case I32:
    ((int32_t *)to)[i] = (int32_t)floor(exact);
    break;
  case I64:
    ((int64_t *)to)[i] = (int64_t)floor(exact);
    break;
  case BOOL:
    ((unsigned char *)to)[i] = floor(exact) != 0;
    break;
  case INT8_BLOCKS:
  case NF4_BLOCKS: // drawn as floats
  case E4M3:
  case E5M2: // of no tensor
    break;
  }
}

// ---- a normal distribution between bounds ------------------------------------------------------

static double polynomial(const double *factors, int n, double x)
{
  double y = factors[0];
  for (int i = 1; i < n; i++) y = y * x + factors[i];
  return y;
}

// Where the normal distribution has the share p, 0 < p < 1, below, to 9 digits: by P. J. Acklam's
// rational functions, one for the middle and one for the tails.
static double normal_quantile(double p)
{
  static const double over[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                -2.759285104469687e+02, 1.383577518672690e+02,
                                -3.066479806614716e+01, 2.506628277459239e+00};
  static const double under[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                                 -1.556989798598866e+02, 6.680131188771972e+01,
                                 -1.328068155288572e+01, 1};
  static const double tail_over[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                                     -2.400758277161838e+00, -2.549732539343734e+00,
                                     4.374664141464968e+00,  2.938163982698783e+00};
  static const double tail_under[] = {7.784695709041462e-03, 3.224671290700398e-01,
                                      2.445134137142996e+00, 3.754408661907416e+00, 1};
  const double middle = 0.02425;
  if (p >= middle && p <= 1 - middle) {
    double x = p - 0.5;
    return x * polynomial(over, 6, x * x) / polynomial(under, 6, x * x);
  }
  double x = sqrt(-2 * log(p < middle ? p : 1 - p));
  double z = polynomial(tail_over, 6, x) / polynomial(tail_under, 5, x);
  return p < middle ? z : -z;
}

static double normal_share_below(double z)
{
  return erfc(-z / sqrt(2)) / 2;
}

// Of uniform numbers from 0 to 1, truncated normal ones.
static void truncate_normal(const struct init *init, size_t count, double *x)
{
  const double mean = init->of[0], deviation = init->of[1];
  double low = (init->of[2] - mean) / deviation, high = (init->of[3] - mean) / deviation;
  // Shares are exact in the lower tail.
  const double sign = low > 0 ? -1 : 1;
  const double from = normal_share_below(low > 0 ? -high : low);
  const double to = normal_share_below(low > 0 ? -low : high);
  for (size_t i = 0; i < count; i++) {
    double z = sign * normal_quantile(from + (to - from) * (x[i] + 0x1p-33));
    x[i] = mean + deviation * fmin(fmax(z, low), high);
  }
}

// ---- whole matrices ----------------------------------------------------------------------------

enum { CHUNK = 8, PANEL = 64 }; // vectors

static double product(const double *a, const double *b, size_t n)
{
  double sums[8] = {0};
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (size_t k = 0; k < 8; k++) sums[k] += a[i + k] * b[i + k];
  for (; i < n; i++) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Takes the part along the unit vector `of` out of x.
static void take_out(const double *of, double *x, size_t n)
{
  const double along = product(of, x, n);
  for (size_t i = 0; i < n; i++) x[i] -= along * of[i];
}

// Makes `count` vectors of n numbers orthogonal and of length 1, each against those before it:
// modified Gram and Schmidt, the Q of QR with a positive diagonal of R. Each vector's arithmetic
// has one order: the threads change nothing.
static void orthogonalize(double *x, size_t count, size_t n)
{
  for (size_t begin = 0; begin < count; begin += PANEL) {
    const size_t end = begin + PANEL < count ? begin + PANEL : count;
#ifdef _OPENMP
#pragma omp parallel for if (begin > 0)
#endif
    for (size_t first = begin; first < end; first += CHUNK)
      for (size_t i = 0; i < begin; i++)
        for (size_t j = first; j < first + CHUNK && j < end; j++) take_out(x + i * n, x + j * n, n);
    for (size_t j = begin; j < end; j++) {
      for (size_t i = begin; i < j; i++) take_out(x + i * n, x + j * n, n);
      const double length = sqrt(product(x + j * n, x + j * n, n));
      for (size_t i = 0; i < n && length > 0; i++) x[j * n + i] /= length;
    }
  }
}

// As torch.nn.init.orthogonal_: vectors are the columns of a high matrix, the rows of a wide one.
static void make_orthogonal(struct drawn *d, const struct philox *named, size_t rows,
                            size_t columns, double gain)
{
  const size_t count = rows * columns;
  d->columns = rows > columns ? columns : 0;
  for (size_t row = 0; row < rows; row++) {
    double *to = d->whole + (d->columns ? row : row * columns);
    for (size_t at = 0; at < columns; at++)
      philox_normal(named, row * columns + at, 1, to + (d->columns ? at * rows : at));
  }
  orthogonalize(d->whole, d->columns ? columns : rows, d->columns ? rows : columns);
  for (size_t i = 0; i < count; i++) d->whole[i] *= gain;
}

struct key {
  double at;
  size_t row;
};

static int compare_keys(const void *a, const void *b)
{
  const struct key *x = a, *y = b;
  if (x->at < y->at || x->at > y->at) return x->at < y->at ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

// As torch.nn.init.sparse_: in each column so many rows are zeros, by random keys.
static bool make_sparse(struct drawn *d, const struct philox *named, size_t rows, size_t columns,
                        double share, double deviation)
{
  const struct philox keys_named = {{named->key[0], named->key[1]},
                                    {~named->name[0], ~named->name[1]}};
  const size_t zeros = (size_t)ceil(share * (double)rows);
  struct key *keys = malloc((rows + 1) * sizeof *keys);
  if (!keys) return false;
  philox_normal(named, 0, rows * columns, d->whole);
  for (size_t i = 0; i < rows * columns; i++) d->whole[i] *= deviation;
  for (size_t column = 0; column < columns; column++) {
    for (size_t row = 0; row < rows; row++) {
      keys[row].row = row;
      philox_uniform(&keys_named, row * columns + column, 1, &keys[row].at);
    }
    qsort(keys, rows, sizeof *keys, compare_keys);
    for (size_t i = 0; i < zeros && i < rows; i++) d->whole[keys[i].row * columns + column] = 0;
  }
  free(keys);
  return true;
}

bool draw_begin(struct drawn *d, const struct member *m, struct failure *why)
{
  const struct init init = program->tensors[m->row].init;
  *d = (struct drawn){.m = m};
  if (init.how != ORTHOGONAL && init.how != SPARSE) return true;
  const struct philox named = philox_named(program->seed, m->name);
  struct numbers_slice numbers;
  table_numbers(m->row, OWN_NAME, &numbers);
  const size_t rows = (size_t)numbers.of[0];
  size_t columns = 1;
  for (size_t i = 1; i < numbers.slice.ndim; i++) columns *= (size_t)numbers.of[i];
  d->whole = malloc((rows * columns + 1) * sizeof *d->whole);
  bool ok = d->whole != NULL;
  if (ok && init.how == ORTHOGONAL) make_orthogonal(d, &named, rows, columns, init.of[0]);
  if (ok && init.how == SPARSE) ok = make_sparse(d, &named, rows, columns, init.of[0], init.of[1]);
  return ok || failed(why, "out of memory for the initial values of %s", m->name);
}

void draw_end(struct drawn *d)
{
  free(d->whole);
  d->whole = NULL;
}

// ---- elements ----------------------------------------------------------------------------------

// Whether a convolution with this weight hands a channel on by the element, in its middle.
static bool is_dirac(const struct numbers_slice *numbers, double groups, uint64_t element)
{
  const uint64_t outputs = (uint64_t)numbers->of[0] / (uint64_t)groups;
  for (size_t i = numbers->slice.ndim; i-- > 2;) {
    const uint64_t size = (uint64_t)numbers->of[i];
    if (element % size != size / 2) return false;
    element /= size;
  }
  const uint64_t inputs = (uint64_t)numbers->of[1];
  return element / inputs % outputs == element % inputs;
}

enum { AT_ONCE = 512 };

// Elements first .. first + count - 1 of the whole tensor, at most AT_ONCE.
static void draw_some(const struct drawn *d, const struct philox *named, uint64_t first,
                      size_t count, void *to, size_t at)
{
  const struct tensor *t = &program->tensors[d->m->row];
  const enum type type = elements_type(t);
  double x[AT_ONCE] = {0};
  const struct init *init = &t->init;
  const double *of = init->of;
  struct numbers_slice numbers;
  table_numbers(d->m->row, OWN_NAME, &numbers);
  if (init->how == UNIFORM || init->how == TOKENS || init->how == TRUNC_NORMAL)
    philox_uniform(named, first, count, x);
  if (init->how == NORMAL || init->how == NORMAL_ROWS) philox_normal(named, first, count, x);
  if (init->how == TRUNC_NORMAL) truncate_normal(init, count, x);
  uint64_t row = 1;
  for (size_t i = 1; i < numbers.slice.ndim; i++) row *= (uint64_t)numbers.of[i];
  for (size_t i = 0; i < count; i++) {
    const uint64_t element = first + i;
    double value = x[i];
    float narrow;
    switch (init->how) {
    case UNIFORM:
      value = of[0] + (of[1] - of[0]) * value;
      narrow = draw_below(type, value, of[1]);
      break;
    case TOKENS:
      value *= of[0];
      narrow = draw_below(type, value, of[0]);
      break;
    case TRUNC_NORMAL:
      narrow = within(type, value, of[2], of[3]);
      break;
    case NORMAL:
      narrow = (float)(value = of[0] + of[1] * value);
      break;
    case NORMAL_ROWS:
      narrow = (float)(value = element / row == (uint64_t)of[0] ? 0 : of[1] * value);
      break;
    case ORTHOGONAL:
    case SPARSE: {
      const size_t rows = d->columns ? (size_t)numbers.of[0] : 0;
      value = d->whole[d->columns ? element % d->columns * rows + element / d->columns : element];
      narrow = (float)value;
      break;
    }
    case DIRAC:
      narrow = (float)(value = is_dirac(&numbers, of[0], element));
      break;
    default:
      narrow = (float)(value = of[0]);
    }
    store(type, narrow, value, to, at + i);
  }
}

// Any number of elements. Each is a function only of its index: threads may share the work.
void draw(const struct drawn *d, uint64_t first, size_t count, void *to)
{
  const struct philox named = philox_named(program->seed, d->m->name);
#ifdef _OPENMP
#pragma omp parallel for if (count > 16 * AT_ONCE)
#endif
  for (size_t done = 0; done < count; done += AT_ONCE) {
    size_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
    draw_some(d, &named, first + done, n, to, done);
  }
}
