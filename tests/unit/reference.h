/* reference.h: what every row of the table of operators means, in plain loops over doubles. Written
   from the operators' definitions, not from the rows' rules and expressions, so that the two can be
   held against each other.

   A reference is given the parts that one rank holds, and makes that rank's part of the outputs;
   whole tensors are the case of one rank. It refuses parts that do not fit each other. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "arrays.h"

/* Where an operand's part begins in the whole tensor, as far as the operation gets it: by the rule
   (ops.h), for letters marked `@`. Elsewhere the part is all it knows: 0, and the part's size. */
struct indices {
  struct shape whole;
  int64_t first[MAX_DIMS];
};
struct places {
  struct indices in[MAX_INPUTS], out[MAX_OUTPUTS];
};

/* Fills in the outputs, whose shapes are given; false if the shapes do not fit. */
typedef bool reference(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at);

/* ------------------------------------------------------------------------------------ broadcast */

/* Aligned at the last dimension, sizes of 1 stretch. */
static bool stretches_to(struct shape part, struct shape space)
{
  if (part.ndim > space.ndim) return false;
  for (int d = 0; d < part.ndim; d++) {
    int64_t size = space.size[space.ndim - part.ndim + d];
    if (part.size[d] != 1 && part.size[d] != size) return false;
  }
  return true;
}

/* The shape to which all of them stretch; false if there is none. */
static bool stretched(const struct array *in, int n, struct shape *space)
{
  *space = (struct shape){0};
  for (int i = 0; i < n; i++)
    if (in[i].shape.ndim > space->ndim) space->ndim = in[i].shape.ndim;
  for (int d = 0; d < space->ndim; d++) space->size[d] = 1;
  for (int i = 0; i < n; i++)
    for (int d = 0; d < in[i].shape.ndim; d++) {
      int64_t *size = &space->size[space->ndim - in[i].shape.ndim + d];
      if (in[i].shape.size[d] != 1) *size = in[i].shape.size[d];
    }
  for (int i = 0; i < n; i++)
    if (!stretches_to(in[i].shape, *space)) return false;
  return true;
}

/* The element of `t`, aligned at the last dimension, that stands at `index` of `space`. */
static double broadcast_element(const struct op *op, struct array t, struct shape space,
                                const int64_t *index)
{
  int64_t own[MAX_DIMS];
  must(stretches_to(t.shape, space), "%s: an input of shape %s does not fit %s",
       op_row[op->kind].name, shape_text(t.shape), shape_text(space));
  for (int d = 0; d < t.shape.ndim; d++)
    own[d] = t.shape.size[d] == 1 ? 0 : index[space.ndim - t.shape.ndim + d];
  return t.at[place_in_array(t.shape, own)];
}

/* --------------------------------------------------------------------------- element by element */

static double logistic(double x)
{
  return 1 / (1 + exp(-x));
}

/* The normal distribution's density and distribution function. */
static double density(double x)
{
  return exp(-x * x / 2) / sqrt(2 * M_PI);
}

static double distribution(double x)
{
  return 0.5 * erfc(-x / sqrt(2));
}

static double gelu_tanh(double x)
{
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
}

/* The number whose error function is y, by halving. */
static double inverse_erf_of(double y)
{
  if (!(fabs(y) < 1)) return fabs(y) == 1 ? y * INFINITY : NAN;
  double low = -6, high = 6;
  for (int i = 0; i < 80; i++) {
    const double middle = (low + high) / 2;
    if (erf(middle) < y)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* The first and the second derivative of the logarithm of the gamma function, as sums over its
   poles; the sums' ends by integrals. */
static double digamma_of(double x)
{
  if (x <= 0 && x == floor(x)) return x == 0 ? -1 / x : NAN;
  double y = 0;
  for (; x < 1000; x++) y -= 1 / x;
  return y + log(x) - 1 / (2 * x) - 1 / (12 * x * x);
}

static double trigamma_of(double x)
{
  double y = 0;
  for (; x < 1000; x++) y += 1 / (x * x);
  return y + 1 / x + 1 / (2 * x * x) + 1 / (6 * x * x * x);
}

static double silu_derivative(double x)
{
  double s = 1 / (1 + exp(-x));
  return s + x * s * (1 - s);
}

static double gelu_tanh_derivative(double x)
{
  double u = sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3));
  double du = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + tanh(u)) + 0.5 * x * du / (cosh(u) * cosh(u));
}

static bool arithmetic(enum op_kind kind, const double *x, double s, double *y)
{
  switch (kind) {
  case OP_add:
    *y = x[0] + x[1];
    return true;
  case OP_sub:
    *y = x[0] - x[1];
    return true;
  case OP_running:
  case OP_in_training:
    *y = x[0];
    return true;
  case OP_mul:
    *y = x[0] * x[1];
    return true;
  case OP_div:
    *y = x[0] / x[1];
    return true;
  case OP_maximum:
    *y = isnan(x[0]) ? x[0] : x[0] > x[1] ? x[0] : x[1];
    return true;
  case OP_minimum:
    *y = isnan(x[0]) ? x[0] : x[0] < x[1] ? x[0] : x[1];
    return true;
  case OP_pow:
    *y = pow(x[0], x[1]);
    return true;
  case OP_power:
    *y = pow(x[0], s);
    return true;
  case OP_inverse_scale:
    *y = pow(x[0], -1);
    return true;
  case OP_neg:
    *y = -x[0];
    return true;
  case OP_scale:
  case OP_batch_share:
    *y = s * x[0];
    return true;
  case OP_abs:
    *y = fabs(x[0]);
    return true;
  case OP_abs_back:
    *y = x[0] * ((x[1] > 0) - (x[1] < 0));
    return true;
  case OP_exp:
    *y = exp(x[0]);
    return true;
  case OP_log:
    *y = log(x[0]);
    return true;
  case OP_sqrt:
    *y = sqrt(x[0]);
    return true;
  case OP_rsqrt:
    *y = pow(x[0], -0.5);
    return true;
  case OP_square:
    *y = pow(x[0], 2);
    return true;
  case OP_sin:
    *y = sin(x[0]);
    return true;
  case OP_cos:
    *y = cos(x[0]);
    return true;
  default:
    return false;
  }
}

static bool activation(enum op_kind kind, const double *x, double *y)
{
  switch (kind) {
  case OP_relu:
    *y = x[0] < 0 ? 0 : x[0];
    return true;
  case OP_relu_back:
    *y = x[1] <= 0 ? 0 : x[0];
    return true;
  case OP_sigmoid:
    *y = logistic(x[0]);
    return true;
  case OP_sigmoid_back:
    *y = x[0] * x[1] * (1 - x[1]);
    return true;
  case OP_tanh:
    *y = tanh(x[0]);
    return true;
  case OP_tanh_back:
    *y = x[0] * (1 - x[1] * x[1]);
    return true;
  case OP_expm1:
    *y = expm1(x[0]);
    return true;
  case OP_expm1_back:
    *y = x[0] * exp(x[1]);
    return true;
  case OP_log1p:
    *y = log1p(x[0]);
    return true;
  case OP_log1p_back:
    *y = x[0] / (1 + x[1]);
    return true;
  case OP_erf:
    *y = erf(x[0]);
    return true;
  case OP_erf_back:
    *y = x[0] * 2 / sqrt(acos(-1)) * exp(-x[1] * x[1]);
    return true;
  case OP_erfinv:
    *y = inverse_erf_of(x[0]);
    return true;
  case OP_lgamma:
    *y = lgamma(x[0]);
    return true;
  case OP_digamma:
    *y = digamma_of(x[0]);
    return true;
  case OP_digamma_back:
    *y = x[0] * trigamma_of(x[1]);
    return true;
  case OP_softplus:
    *y = log1p(exp(x[0]));
    return true;
  case OP_softplus_back:
    *y = x[0] * logistic(x[1]);
    return true;
  case OP_silu:
    *y = x[0] * logistic(x[0]);
    return true;
  case OP_silu_back:
    *y = x[0] * silu_derivative(x[1]);
    return true;
  case OP_gelu:
    *y = x[0] * distribution(x[0]);
    return true;
  case OP_gelu_back:
    *y = x[0] * (distribution(x[1]) + x[1] * density(x[1]));
    return true;
  case OP_gelu_tanh:
    *y = gelu_tanh(x[0]);
    return true;
  case OP_gelu_tanh_back:
    *y = x[0] * gelu_tanh_derivative(x[1]);
    return true;
  case OP_merge: /* the mean of x[0] and x[2], weighted by the exponentials of x[1] and x[3] */
    *y = x[3] == -INFINITY ? x[0] : (x[0] * exp(x[1] - x[3]) + x[2]) / (exp(x[1] - x[3]) + 1);
    return true;
  case OP_merge_logs:
    *y = log(exp(x[0]) + exp(x[1]));
    return true;
  default:
    return false;
  }
}

static bool comparison(enum op_kind kind, const double *x, double *y)
{
  switch (kind) {
  case OP_where:
    *y = x[0] != 0 ? x[1] : x[2];
    return true;
  case OP_eq:
    *y = x[0] == x[1];
    return true;
  case OP_ne:
    *y = x[0] != x[1];
    return true;
  case OP_lt:
    *y = x[0] < x[1];
    return true;
  case OP_le:
    *y = x[0] <= x[1];
    return true;
  case OP_gt:
    *y = x[0] > x[1];
    return true;
  case OP_ge:
    *y = x[0] >= x[1];
    return true;
  case OP_logical_and:
    *y = x[0] != 0 && x[1] != 0;
    return true;
  case OP_logical_or:
    *y = x[0] != 0 || x[1] != 0;
    return true;
  case OP_logical_not:
    *y = x[0] == 0;
    return true;
  default:
    return false;
  }
}

/* One element of an operator that looks at one place alone, or one term of a reduction; false if
   the operator is none of these. */
static bool element(enum op_kind kind, const double *x, double s, double *y)
{
  if (kind == OP_sum || kind == OP_amax || kind == OP_amin || kind == OP_permute) {
    *y = x[0];
    return true;
  }
  if (kind == OP_expand || kind == OP_full) {
    *y = kind == OP_full ? s : s * x[0];
    return true;
  }
  return arithmetic(kind, x, s, y) || activation(kind, x, y) || comparison(kind, x, y);
}

/* The factor with which numbers up to `largest` fill the range of float8. */
static double scale_of_float8(double largest, int64_t wide, int64_t power_of_2)
{
  double scale = (wide ? 57344.0 : 448.0) / fmax(largest, 1e-12);
  return power_of_2 ? exp2(floor(log2(scale))) : scale;
}

/* To the nearest number with 3 or 4 significant bits, or a multiple of the least one. */
static double to_nearest_float8(double x, int64_t wide)
{
  int exponent, bits = wide ? 3 : 4, least = wide ? -16 : -9;
  double most = wide ? 57344 : 448, y = fmax(-most, fmin(most, x));
  frexp(y, &exponent);
  int last = exponent - bits > least ? exponent - bits : least;
  return ldexp(nearbyint(ldexp(y, -last)), last);
}

static bool element_of_float8(const struct op *op, const double *x, double *y)
{
  if (op->kind == OP_float8_scale)
    *y = scale_of_float8(x[0], number_of(op, "wide"), number_of(op, "power"));
  else if (op->kind == OP_to_float8)
    *y = to_nearest_float8(x[0] * x[1], number_of(op, "wide"));
  return op->kind == OP_float8_scale || op->kind == OP_to_float8;
}

static bool run_elements(const struct op *op, const struct array *in, struct array *out,
                         const struct places *at)
{
  (void)at;
  struct shape space;
  if (!stretched(in, op->nin, &space) || !same_shape(space, out->shape)) return false;
  for (int64_t i = 0, n = elements(space); i < n; i++) {
    int64_t index[MAX_DIMS];
    double x[MAX_INPUTS];
    indices_of(space, i, index);
    for (int k = 0; k < op->nin; k++) x[k] = broadcast_element(op, in[k], space, index);
    must(element_of_float8(op, x, &out->at[i]) || element(op->kind, x, op->scalar, &out->at[i]),
         "no reference for %s", op_row[op->kind].name);
  }
  return true;
}

/* To the nearest number of 8 significant bits, of two the one whose last bit is 0. */
static double to_bf16(double x)
{
  int exponent;
  double fraction = frexp(x, &exponent);
  return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

/* A number becomes another type: towards zero where it is whole, 1 or 0 where it is a truth. */
static bool run_cast(const struct op *op, const struct array *in, struct array *out,
                     const struct places *at)
{
  (void)at;
  if (!same_shape(in->shape, out->shape)) return false;
  for (int64_t i = 0, n = elements(in->shape); i < n; i++) {
    double x = in->at[i];
    out->at[i] = op->type == BOOL                     ? x != 0
                 : op->type == I32 || op->type == I64 ? trunc(x)
                 : op->type == BF16                   ? to_bf16(x)
                                                      : x;
  }
  return true;
}

/* An index stays, or is the number that is ignored; anything else becomes -1. */
static bool run_index_within(const struct op *op, const struct array *in, struct array *out,
                             const struct places *at)
{
  double below = (double)number_of(op, "below"), ignored = (double)number_of(op, "ignored");
  (void)at;
  if (!same_shape(in->shape, out->shape)) return false;
  for (int64_t i = 0, n = elements(in->shape); i < n; i++) {
    double x = in->at[i];
    out->at[i] = (x >= 0 && x < below) || fabs(x - ignored) < 0.5 ? x : -1;
  }
  return true;
}

/* A number in [0, 1) for each place of a whole tensor in each stream. */
static double random_at(int64_t stream, int64_t flat)
{
  uint64_t x = (uint64_t)stream * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)flat;
  return (double)(splitmix64(&x) >> 11) / (double)(UINT64_C(1) << 53);
}

/* The random number of an element of the output. */
static double random_of(const struct op *op, struct shape here, const struct places *at, int64_t i)
{
  int64_t index[MAX_DIMS];
  indices_of(here, i, index);
  for (int d = 0; d < here.ndim; d++) index[d] += at->out[0].first[d];
  return random_at(number_of(op, "stream"), place_in_array(at->out[0].whole, index));
}

static bool run_dropout(const struct op *op, const struct array *in, struct array *out,
                        const struct places *at)
{
  if (!same_shape(in->shape, out->shape)) return false;
  for (int64_t i = 0, n = elements(in->shape); i < n; i++)
    out->at[i] = random_of(op, in->shape, at, i) < op->scalar ? 0 : in->at[i] / (1 - op->scalar);
  return true;
}

/* Some number for each place. */
static bool run_random(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  if (!same_shape(in->shape, out->shape)) return false;
  for (int64_t i = 0, n = elements(in->shape); i < n; i++)
    out->at[i] = random_of(op, in->shape, at, i);
  return true;
}

/* The lower or the upper triangle of each matrix. */
static bool run_triangle(const struct op *op, const struct array *in, struct array *out,
                         const struct places *at)
{
  int n = in->shape.ndim;
  if (!same_shape(in->shape, out->shape)) return false;
  for (int64_t i = 0, all = elements(in->shape); i < all; i++) {
    int64_t index[MAX_DIMS];
    indices_of(in->shape, i, index);
    int64_t row = index[n - 2] + at->out[0].first[n - 2];
    int64_t column = index[n - 1] + at->out[0].first[n - 1], diagonal = number_of(op, "diagonal");
    bool stays = op->kind == OP_tril ? column <= row + diagonal : column >= row + diagonal;
    out->at[i] = stays ? in->at[i] : 0;
  }
  return true;
}

/* Turns pairs of elements of the last dimension by the angle whose cosine and sine are given. */
static bool run_rotary(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  struct shape space = out->shape, pairs = space;
  int last = space.ndim - 1;
  pairs.size[last] = space.size[last] / 2;
  if (!same_shape(in->shape, space) || space.size[last] % 2 || !stretches_to(in[1].shape, pairs) ||
      !same_shape(in[1].shape, in[2].shape) ||
      in[1].shape.size[in[1].shape.ndim - 1] != pairs.size[last])
    return false;
  for (int64_t i = 0, n = elements(pairs); i < n; i++) {
    int64_t first[MAX_DIMS], second[MAX_DIMS], index[MAX_DIMS];
    indices_of(pairs, i, index);
    memcpy(first, index, sizeof first);
    memcpy(second, index, sizeof second);
    double cosine = broadcast_element(op, in[1], pairs, index);
    double sine = broadcast_element(op, in[2], pairs, index);
    if (op->kind == OP_rotary) {
      second[last] += pairs.size[last];
    } else {
      first[last] = 2 * index[last];
      second[last] = 2 * index[last] + 1;
    }
    double x = in->at[place_in_array(space, first)], y = in->at[place_in_array(space, second)];
    out->at[place_in_array(space, first)] = x * cosine - y * sine;
    out->at[place_in_array(space, second)] = y * cosine + x * sine;
  }
  return true;
}

/* ------------------------------------------------------------------- dimensions come and go */

/* The indices without those in op->dims, which are gone or 0. */
static void reduced_index(const struct op *op, int ndim, const int64_t *index, int64_t *own)
{
  for (int d = 0, n = 0; d < ndim; d++) {
    bool gone = op->dims >> d & 1;
    if (!gone) own[n++] = index[d];
    if (gone && op->keepdim) own[n++] = 0;
  }
}

static struct shape reduced_shape(const struct op *op, struct shape space)
{
  struct shape s = {0};
  for (int d = 0; d < space.ndim; d++)
    if (!(op->dims >> d & 1) || op->keepdim)
      s.size[s.ndim++] = op->dims >> d & 1 ? 1 : space.size[d];
  return s;
}

static bool run_reduce(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  if (!same_shape(reduced_shape(op, in->shape), out->shape)) return false;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++)
    out->at[i] = op->kind == OP_sum ? 0 : op->kind == OP_amin ? INFINITY : -INFINITY;
  for (int64_t i = 0, n = elements(in->shape); i < n; i++) {
    int64_t index[MAX_DIMS], own[MAX_DIMS];
    indices_of(in->shape, i, index);
    reduced_index(op, in->shape.ndim, index, own);
    double *y = &out->at[place_in_array(out->shape, own)], x = in->at[i];
    if (op->kind == OP_sum)
      *y += op->scalar * x;
    else if (op->kind == OP_amax_abs)
      *y = reduce_two(MAX, *y, fabs(x));
    else
      *y = reduce_two(op->kind == OP_amax ? MAX : MIN, *y, x);
  }
  return true;
}

static bool run_expand(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  if (!same_shape(reduced_shape(op, out->shape), in->shape)) return false;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) {
    int64_t index[MAX_DIMS], own[MAX_DIMS];
    indices_of(out->shape, i, index);
    reduced_index(op, out->shape.ndim, index, own);
    out->at[i] = op->scalar * in->at[place_in_array(in->shape, own)];
  }
  return true;
}

static bool run_full(const struct op *op, const struct array *in, struct array *out,
                     const struct places *at)
{
  (void)in;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++)
    out->at[i] = op->kind == OP_full ? op->scalar : (double)(at->out[0].first[0] + i);
  return true;
}

/* A dimension for each letter; 1 is no letter. Finds the letters' sizes; false if they differ. */
static bool sizes_of_letters(const char *letters, struct shape shape, int64_t *size)
{
  int d = 0;
  for (; *letters && *letters != ',' && *letters != '-'; letters++, d++) {
    if (d >= shape.ndim) return false;
    if (*letters == '1') continue;
    int64_t *known = &size[*letters & 127];
    if (*known != NONE && *known != shape.size[d]) return false;
    *known = shape.size[d];
  }
  return d == shape.ndim;
}

/* The element's place in a tensor whose dimensions are these letters, each at its own index. */
static int64_t place_by_letters(const char *letters, struct shape shape, const int64_t *at)
{
  int64_t index[MAX_DIMS];
  for (int d = 0; d < shape.ndim; d++) index[d] = letters[d] == '1' ? 0 : at[letters[d] & 127];
  return place_in_array(shape, index);
}

/* The sum over all letters that the output lacks of the inputs' products. */
static bool run_einsum(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  const char *part[3] = {op->equation}, *to = strstr(op->equation, "->") + 2;
  int64_t size[128], index[128];
  memset(size, 0xff, sizeof size);
  if (op->nin == 2) part[1] = strchr(op->equation, ',') + 1;
  for (int i = 0; i < op->nin; i++)
    if (!sizes_of_letters(part[i], in[i].shape, size)) return false;
  if (!sizes_of_letters(to, out->shape, size)) return false;
  struct shape space = {0};
  char letter[32];
  for (int c = 0; c < 128; c++)
    if (size[c] != NONE) {
      must(space.ndim < MAX_DIMS, "%s has too many letters for the reference", op->equation);
      letter[space.ndim] = (char)c;
      space.size[space.ndim++] = size[c];
    }
  int64_t walk[MAX_DIMS] = {0};
  if (!elements(space)) return true;
  do {
    for (int d = 0; d < space.ndim; d++) index[(int)letter[d]] = walk[d];
    double product = 1;
    for (int i = 0; i < op->nin; i++)
      product *= in[i].at[place_by_letters(part[i], in[i].shape, index)];
    out->at[place_by_letters(to, out->shape, index)] += product;
  } while (next_index(space, walk));
  return true;
}

/* The same elements in the same order. */
static bool run_view(const struct op *op, const struct array *in, struct array *out,
                     const struct places *at)
{
  (void)op;
  (void)at;
  if (elements(in->shape) != elements(out->shape)) return false;
  memcpy(out->at, in->at, (size_t)elements(in->shape) * sizeof *in->at);
  return true;
}

/* The one dimension that the operation names. */
static int named_dim(const struct op *op)
{
  int d = 0;
  while (!(op->dims >> d & 1)) d++;
  must(op->dims == 1u << d, "%s names several dimensions", op_row[op->kind].name);
  return d;
}

static bool alike_but(int dim, struct shape a, struct shape b)
{
  if (a.ndim != b.ndim || dim >= a.ndim) return false;
  a.size[dim] = b.size[dim];
  return same_shape(a, b);
}

static bool run_cat(const struct op *op, const struct array *in, struct array *out,
                    const struct places *at)
{
  (void)at;
  int dim = named_dim(op);
  int64_t start = 0;
  for (int i = 0; i < op->nin; i++) {
    if (!alike_but(dim, in[i].shape, out->shape)) return false;
    start += in[i].shape.size[dim];
  }
  if (start != out->shape.size[dim]) return false;
  start = 0;
  for (int i = 0; i < op->nin; i++) {
    for (int64_t k = 0, n = elements(in[i].shape); k < n; k++) {
      int64_t index[MAX_DIMS];
      indices_of(in[i].shape, k, index);
      index[dim] += start;
      out->at[place_in_array(out->shape, index)] = in[i].at[k];
    }
    start += in[i].shape.size[dim];
  }
  return true;
}

/* The first step's slice. */
static bool run_scan_take(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  (void)at;
  int64_t n = elements(out->shape);
  if (op->dims != 1 || n * in->shape.size[0] != elements(in->shape)) return false;
  memcpy(out->at, in->at, (size_t)n * sizeof *out->at);
  return true;
}

static bool run_scan_put(const struct op *op, const struct array *in, struct array *out,
                         const struct places *at)
{
  (void)op, (void)at;
  if (!same_shape(in->shape, out->shape)) return false;
  memcpy(out->at, in->at, (size_t)elements(out->shape) * sizeof *out->at);
  return true;
}

/* The slices of the first steps; the last of these stands for all steps up to the last one. */
static bool run_scan_stack(const struct op *op, const struct array *in, struct array *out,
                           const struct places *at)
{
  (void)at;
  int64_t steps = out->shape.size[0], n = elements(in->shape);
  if (op->dims != 1 || n * steps != elements(out->shape)) return false;
  for (int64_t step = 0; step < steps; step++) {
    int of = step == steps - 1 ? op->nin - 1 : step < op->nin - 1 ? (int)step : op->nin - 2;
    if (!same_shape(in[of].shape, in->shape)) return false;
    memcpy(out->at + step * n, in[of].at, (size_t)n * sizeof *out->at);
  }
  return true;
}

/* The index of the input that goes to index i of the output; NONE: a zero. */
static int64_t picked(const struct op *op, int64_t i)
{
  switch (op->kind) {
  case OP_narrow:
    return i + number_of(op, "start");
  case OP_pad:
    return i - number_of(op, "before");
  case OP_every:
    return i * number_of(op, "step");
  default:
    return i % number_of(op, "step") ? NONE : i / number_of(op, "step");
  }
}

static bool run_picks(const struct op *op, const struct array *in, struct array *out,
                      const struct places *at)
{
  (void)at;
  int dim = named_dim(op);
  if (!alike_but(dim, in->shape, out->shape)) return false;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) {
    int64_t index[MAX_DIMS];
    indices_of(out->shape, i, index);
    index[dim] = picked(op, index[dim]);
    bool there = index[dim] >= 0 && index[dim] < in->shape.size[dim];
    out->at[i] = there ? in->at[place_in_array(in->shape, index)] : 0;
  }
  return true;
}

/* ----------------------------------------------------------------------- by indices of elements */

/* An index into a dimension of which this rank has a part: where in the part; or NONE. */
static int64_t in_part(double index, int64_t first, int64_t size)
{
  int64_t i = (int64_t)index - first;
  return i >= 0 && i < size ? i : NONE;
}

/* y[.., j, ..] = x[.., index[.., j, ..], ..] */
static bool run_gather(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  int dim = named_dim(op);
  if (!alike_but(dim, in[0].shape, out->shape) || !same_shape(in[1].shape, out->shape))
    return false;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) {
    int64_t index[MAX_DIMS];
    indices_of(out->shape, i, index);
    index[dim] = in_part(in[1].at[i], at->in[0].first[dim], in[0].shape.size[dim]);
    out->at[i] = index[dim] == NONE ? 0 : in[0].at[place_in_array(in[0].shape, index)];
  }
  return true;
}

/* y[.., index[.., ..], ..] = x[.., ..] */
static bool run_place(const struct op *op, const struct array *in, struct array *out,
                      const struct places *at)
{
  int dim = named_dim(op);
  if (!same_shape(reduced_shape(op, out->shape), in[0].shape) ||
      !same_shape(in[0].shape, in[1].shape))
    return false;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) {
    int64_t index[MAX_DIMS], own[MAX_DIMS];
    indices_of(out->shape, i, index);
    reduced_index(op, out->shape.ndim, index, own);
    int64_t from = place_in_array(in[0].shape, own);
    bool here = in_part(in[1].at[from], at->out[0].first[dim], out->shape.size[dim]) == index[dim];
    out->at[i] = here ? in[0].at[from] : 0;
  }
  return true;
}

/* y[.., index[.., j, ..], ..] += x[.., j, ..] */
static bool run_scatter_add(const struct op *op, const struct array *in, struct array *out,
                            const struct places *at)
{
  int dim = named_dim(op);
  if (!alike_but(dim, in[0].shape, out->shape) || !same_shape(in[0].shape, in[1].shape))
    return false;
  for (int64_t i = 0, n = elements(in[0].shape); i < n; i++) {
    int64_t index[MAX_DIMS];
    indices_of(in[0].shape, i, index);
    index[dim] = in_part(in[1].at[i], at->out[0].first[dim], out->shape.size[dim]);
    if (index[dim] != NONE) out->at[place_in_array(out->shape, index)] += in[0].at[i];
  }
  return true;
}

/* y = x; y[.., index[.., j, ..], ..] = z[.., j, ..]; the last of several to one place stays. */
static bool run_scatter(const struct op *op, const struct array *in, struct array *out,
                        const struct places *at)
{
  int dim = named_dim(op);
  if (!same_shape(in[0].shape, out->shape) || !same_shape(in[1].shape, in[2].shape) ||
      !alike_but(dim, in[1].shape, out->shape))
    return false;
  memcpy(out->at, in[0].at, (size_t)elements(out->shape) * sizeof *out->at);
  for (int64_t i = 0, n = elements(in[1].shape); i < n; i++) {
    int64_t index[MAX_DIMS];
    indices_of(in[1].shape, i, index);
    index[dim] = in_part(in[1].at[i], at->out[0].first[dim], out->shape.size[dim]);
    if (index[dim] != NONE) out->at[place_in_array(out->shape, index)] = in[2].at[i];
  }
  return true;
}

/* y[.., j, ..] = x[.., index[j], ..] */
static bool run_index_select(const struct op *op, const struct array *in, struct array *out,
                             const struct places *at)
{
  int dim = named_dim(op);
  if (!alike_but(dim, in[0].shape, out->shape) || in[1].shape.ndim != 1 ||
      in[1].shape.size[0] != out->shape.size[dim])
    return false;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) {
    int64_t index[MAX_DIMS];
    indices_of(out->shape, i, index);
    index[dim] = in_part(in[1].at[index[dim]], at->in[0].first[dim], in[0].shape.size[dim]);
    out->at[i] = index[dim] == NONE ? 0 : in[0].at[place_in_array(in[0].shape, index)];
  }
  return true;
}

/* y[.., index[j], ..] += x[.., j, ..] */
static bool run_index_add(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  int dim = named_dim(op);
  if (!alike_but(dim, in[0].shape, out->shape) || in[1].shape.ndim != 1 ||
      in[1].shape.size[0] != in[0].shape.size[dim])
    return false;
  for (int64_t i = 0, n = elements(in[0].shape); i < n; i++) {
    int64_t index[MAX_DIMS];
    indices_of(in[0].shape, i, index);
    index[dim] = in_part(in[1].at[index[dim]], at->out[0].first[dim], out->shape.size[dim]);
    if (index[dim] != NONE) out->at[place_in_array(out->shape, index)] += in[0].at[i];
  }
  return true;
}

/* ------------------------------------------------------------------------------ rows by expert

   The whole tensors, [e, b, s, k, d], with zeros at the places of other experts. */

enum { PLACES = 3 }; /* the dimensions b, s, k */

/* Whether the shape is [experts, those of the places, ...]. */
static bool is_by_expert(struct shape rows, struct shape places)
{
  if (rows.ndim < 1 + PLACES || places.ndim != PLACES) return false;
  return !memcmp(rows.size + 1, places.size, PLACES * sizeof *places.size);
}

static bool run_count_places(const struct op *op, const struct array *in, struct array *out,
                             const struct places *at)
{
  (void)op;
  for (int64_t i = 0, n = elements(in[0].shape); i < n; i++) {
    int64_t e = in_part(in[0].at[i], at->out[0].first[0], out->shape.size[0]);
    if (e != NONE) out->at[e]++;
  }
  return in[0].shape.ndim == PLACES;
}

/* Each place's row with its token: rows[e, i, j] and tokens[i / k, j]. */
static bool run_at_places(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  bool dispatch = op->kind == OP_dispatch, back = op->kind == OP_combine_back;
  const struct array *rows = dispatch ? out : back ? &in[2] : &in[0];
  const struct array *tokens = dispatch || back ? &in[0] : out;
  const struct array *weight = back ? out : &in[2];
  const struct indices *of = dispatch ? &at->out[0] : back ? &at->in[2] : &at->in[0];
  if (!is_by_expert(rows->shape, in[1].shape) || tokens->shape.ndim != PLACES ||
      !same_shape(weight->shape, in[1].shape) || tokens->shape.size[2] != rows->shape.size[4] ||
      in[3].shape.size[0] != rows->shape.size[0])
    return false;
  int64_t places = elements(in[1].shape), width = tokens->shape.size[2], k = in[1].shape.size[2];
  for (int64_t i = 0; i < places; i++) {
    int64_t e = in_part(in[1].at[i], of->first[0], rows->shape.size[0]);
    for (int64_t j = 0; j < width && e != NONE; j++) {
      double *row = &rows->at[(e * places + i) * width + j];
      double *token = &tokens->at[i / k * width + j];
      if (dispatch) *row = *token * weight->at[i];
      if (back) weight->at[i] += *token * *row;
      if (!dispatch && !back) *token += *row * weight->at[i];
    }
  }
  return true;
}

static bool run_grouped_linear(const struct op *op, const struct array *in, struct array *out,
                               const struct places *at)
{
  (void)at;
  bool forward = op->kind == OP_grouped_linear,
       of_weight = op->kind == OP_grouped_linear_back_weight;
  const struct array *y = forward ? out : &in[0], *w = of_weight ? out : &in[1];
  const struct array *x = forward ? &in[0] : of_weight ? &in[1] : out;
  int64_t experts = w->shape.size[0], n = w->shape.size[1], d = w->shape.size[2];
  if (w->shape.ndim != 3 || x->shape.ndim != 5 || y->shape.ndim != 5 || x->shape.size[4] != d ||
      y->shape.size[4] != n || x->shape.size[0] != experts || in[2].shape.size[0] != experts ||
      memcmp(x->shape.size, y->shape.size, 4 * sizeof *x->shape.size) != 0)
    return false;
  int64_t rows = 1;
  for (int i = 1; i < 4; i++) rows *= x->shape.size[i];
  for (int64_t i = 0; i < experts * rows; i++)
    for (int64_t a = 0; a < n; a++)
      for (int64_t b = 0; b < d; b++) {
        double *to = &y->at[i * n + a], *from = &x->at[i * d + b];
        double *weight = &w->at[(i / rows * n + a) * d + b];
        if (forward) *to += *from * *weight;
        if (of_weight) *weight += *to * *from;
        if (!forward && !of_weight) *from += *to * *weight;
      }
  return true;
}

/* Whether `all` is `few` and a last dimension of this size. */
static bool with_last(struct shape few, int64_t last, struct shape all)
{
  few.size[few.ndim++] = last;
  return same_shape(few, all);
}

/* A row of the table for each index. */
static bool run_embedding(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  (void)op;
  int64_t width = in[0].shape.size[1];
  if (in[0].shape.ndim != 2 || !with_last(in[1].shape, width, out->shape)) return false;
  for (int64_t i = 0, n = elements(in[1].shape); i < n; i++) {
    int64_t row = in_part(in[1].at[i], at->in[0].first[0], in[0].shape.size[0]);
    for (int64_t j = 0; j < width; j++)
      out->at[i * width + j] = row == NONE ? 0 : in[0].at[row * width + j];
  }
  return true;
}

/* A weight: of a matrix, or of one in blocks, whose first two bytes are a bfloat16, the scale. */
static double stored_weight(const struct array *w, int64_t i, int64_t j)
{
  if (w->shape.ndim == 2) return w->at[i * w->shape.size[1] + j];
  const struct block of = blocks_of(I8);
  const double *block = w->at + (i * w->shape.size[1] + j / of.numbers) * of.bytes;
  const uint32_t bits = ((uint32_t)(uint8_t)block[1] << 8 | (uint8_t)block[0]) << 16;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return scale * block[2 + j % of.numbers];
}

static int64_t stored_columns(const struct array *w)
{
  return w->shape.size[1] * (w->shape.ndim == 2 ? 1 : blocks_of(I8).numbers);
}

static bool run_stored_linear(const struct op *op, const struct array *in, struct array *out,
                              const struct places *at)
{
  (void)at;
  const struct array *w = &in[1];
  const bool transposed =
      op->kind == OP_linear_bf16_transposed || op->kind == OP_linear_int8_transposed;
  const int64_t columns = stored_columns(w), n = transposed ? columns : w->shape.size[0];
  const int64_t k = transposed ? w->shape.size[0] : columns;
  const int64_t rows = in[0].shape.size[0] * in[0].shape.size[1];
  if (elements(in[0].shape) != rows * k || elements(out->shape) != rows * n) return false;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t c = 0; c < k; c++)
        out->at[i * n + j] +=
            in[0].at[i * k + c] * (transposed ? stored_weight(w, c, j) : stored_weight(w, j, c));
  return true;
}

static bool run_embedding_int8(const struct op *op, const struct array *in, struct array *out,
                               const struct places *at)
{
  (void)op;
  const int64_t width = stored_columns(&in[0]);
  if (elements(out->shape) != elements(in[1].shape) * width) return false;
  for (int64_t i = 0, n = elements(in[1].shape); i < n; i++) {
    int64_t row = in_part(in[1].at[i], at->in[0].first[0], in[0].shape.size[0]);
    for (int64_t j = 0; j < width; j++)
      out->at[i * width + j] = row == NONE ? 0 : stored_weight(&in[0], row, j);
  }
  return true;
}

static bool run_from_int8(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  (void)op, (void)at;
  const int64_t width = stored_columns(&in[0]);
  for (int64_t i = 0, n = elements(out->shape); i < n; i++)
    out->at[i] = stored_weight(&in[0], i / width, i % width);
  return elements(out->shape) == in[0].shape.size[0] * width;
}

/* An entry of a table: the nearest one, where a term of a pending sum is no index. */
static double entry_of(const double *table, double index, int64_t entries)
{
  const double last = (double)entries - 1;
  return table[index >= 0 && index <= last ? (int64_t)index : index > last ? entries - 1 : 0];
}

/* Of a block its first byte is the number of its size; each further one two numbers. */
static bool run_from_nf4(const struct op *op, const struct array *in, struct array *out,
                         const struct places *at)
{
  enum { NUMBERS = 64, BYTES = 33, SHIFT = 1, VALUES = 2, SIZES = 18, GROUPS = 274, GROUP = 256 };
  const int64_t blocks = in[0].shape.size[1], whole = graph->value[op->in[0]].shape.size[1];
  const int64_t groups = in[1].shape.size[0] - GROUPS;
  const double *nested = in[1].at;
  if (elements(out->shape) != in[0].shape.size[0] * blocks * NUMBERS) return false;
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) {
    const int64_t row = i / NUMBERS / blocks + at->in[0].first[0];
    const int64_t block = i / NUMBERS % blocks + at->in[0].first[1];
    const double *bytes = in[0].at + i / NUMBERS * BYTES;
    const double two = bytes[1 + i % NUMBERS / 2], upper = floor(two / 16);
    const double place = (double)(op->number[0] + row * whole + block) + nested[SHIFT];
    const double size = entry_of(nested + SIZES, bytes[0], 256) *
                            entry_of(nested + GROUPS, floor(place / GROUP), groups) +
                        nested[0];
    out->at[i] = size * entry_of(nested + VALUES, i % 2 ? two - 16 * upper : upper, 16);
  }
  return true;
}

static bool run_embedding_back(const struct op *op, const struct array *in, struct array *out,
                               const struct places *at)
{
  (void)op;
  int64_t width = out->shape.size[1];
  if (out->shape.ndim != 2 || !with_last(in[1].shape, width, in[0].shape)) return false;
  for (int64_t i = 0, n = elements(in[1].shape); i < n; i++) {
    int64_t row = in_part(in[1].at[i], at->out[0].first[0], out->shape.size[0]);
    for (int64_t j = 0; j < width && row != NONE; j++)
      out->at[row * width + j] += in[0].at[i * width + j];
  }
  return true;
}

/* ---------------------------------------------------------------------------- along a dimension */

/* The elements of a tensor along one dimension: n of them, `step` apart. */
struct line {
  int64_t n, step, first;
};

static struct line line_through(struct shape s, int dim, int64_t which)
{
  struct line l = {.n = s.size[dim], .step = 1};
  for (int d = dim + 1; d < s.ndim; d++) l.step *= s.size[d];
  l.first = which / l.step * l.step * l.n + which % l.step;
  return l;
}

static bool run_cumsum(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  int dim = named_dim(op);
  if (!same_shape(in->shape, out->shape)) return false;
  int64_t all = elements(in->shape);
  for (int64_t which = 0; all && which < all / in->shape.size[dim]; which++) {
    struct line l = line_through(in->shape, dim, which);
    for (int64_t i = 0; i < l.n; i++)
      for (int64_t k = 0; k < l.n; k++)
        if (number_of(op, "reverse") ? k >= i : k <= i)
          out->at[l.first + i * l.step] += in->at[l.first + k * l.step];
  }
  return true;
}

static bool run_cummax(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  int dim = named_dim(op);
  if (!same_shape(in->shape, out[0].shape) || !same_shape(in->shape, out[1].shape)) return false;
  const double sign = number_of(op, "least") ? -1 : 1;
  int64_t all = elements(in->shape);
  for (int64_t which = 0; all && which < all / in->shape.size[dim]; which++) {
    struct line l = line_through(in->shape, dim, which);
    for (int64_t i = 0; i < l.n; i++) {
      int64_t best = 0;
      for (int64_t k = 1; k <= i; k++)
        if (sign * in->at[l.first + k * l.step] >= sign * in->at[l.first + best * l.step]) best = k;
      out[0].at[l.first + i * l.step] = in->at[l.first + best * l.step];
      out[1].at[l.first + i * l.step] = (double)best;
    }
  }
  return true;
}

/* The place of each element in the order is how many come before it: equal ones stay in order. */
static bool run_argsort(const struct op *op, const struct array *in, struct array *out,
                        const struct places *at)
{
  (void)at;
  int dim = named_dim(op);
  if (!same_shape(in->shape, out->shape)) return false;
  int64_t all = elements(in->shape);
  for (int64_t which = 0; all && which < all / in->shape.size[dim]; which++) {
    struct line l = line_through(in->shape, dim, which);
    for (int64_t i = 0; i < l.n; i++) {
      int64_t before = 0;
      for (int64_t k = 0; k < l.n; k++) {
        double a = in->at[l.first + k * l.step], b = in->at[l.first + i * l.step];
        bool first = number_of(op, "descending") ? a > b : a < b;
        before += first || (a == b && k < i);
      }
      out->at[l.first + before * l.step] = (double)i;
    }
  }
  return true;
}

/* Eigenvalues of the symmetric matrix a, ascending, and eigenvectors in the columns of v, by
   Jacobi's rotations. a is overwritten. */
static void jacobi(int64_t n, double *a, double *v, double *values)
{
  enum { SWEEPS = 30 };
  for (int64_t i = 0; i < n * n; i++) v[i] = i / n == i % n;
  for (int64_t at = 0; at < SWEEPS * n * n; at++) {
    int64_t p = at / n % n, q = at % n;
    if (p >= q || a[p * n + q] == 0) continue;
    double turn = 0.5 * atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]);
    double c = cos(turn), s = sin(turn);
    for (int64_t k = 0; k < n; k++) {
      double x = a[k * n + p], y = a[k * n + q], vx = v[k * n + p], vy = v[k * n + q];
      a[k * n + p] = c * x - s * y;
      a[k * n + q] = s * x + c * y;
      v[k * n + p] = c * vx - s * vy;
      v[k * n + q] = s * vx + c * vy;
    }
    for (int64_t k = 0; k < n; k++) {
      double x = a[p * n + k], y = a[q * n + k];
      a[p * n + k] = c * x - s * y;
      a[q * n + k] = s * x + c * y;
    }
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t least = i;
    for (int64_t k = i; k < n; k++)
      if (a[k * n + k] < a[least * n + least]) least = k;
    values[i] = a[least * n + least];
    a[least * n + least] = a[i * n + i];
    for (int64_t k = 0; k < n; k++) {
      double x = v[k * n + least];
      v[k * n + least] = v[k * n + i];
      v[k * n + i] = x;
    }
  }
}

/* Signs of eigenvectors and of pairs of singular vectors are any. */
static bool run_eigh(const struct op *op, const struct array *in, struct array *out,
                     const struct places *at)
{
  (void)op;
  (void)at;
  int last = in->shape.ndim - 1;
  int64_t n = in->shape.size[last];
  if (last < 1 || in->shape.size[last - 1] != n || !same_shape(in->shape, out[1].shape) ||
      out[0].shape.ndim != last || out[0].shape.size[last - 1] != n)
    return false;
  for (int64_t i = 0, all = elements(in->shape); i < all; i += n * n) {
    double *a = take((size_t)(n * n) * sizeof *a);
    for (int64_t k = 0; k < n * n; k++)
      a[k] = in->at[i + (k / n >= k % n ? k : k % n * n + k / n)]; /* the lower triangle */
    jacobi(n, a, out[1].at + i, out[0].at + i / n);
  }
  return true;
}

/* Column `j` of the orthonormal columns before it: what a unit vector has beside them. */
static void complete_column(int64_t m, int64_t columns, double *u, int64_t j)
{
  double most = -1, *best = take((size_t)m * sizeof *best), *x = take((size_t)m * sizeof *x);
  for (int64_t unit = 0; unit < m; unit++) {
    double norm = 0;
    for (int64_t i = 0; i < m; i++) {
      x[i] = i == unit;
      for (int64_t k = 0; k < j; k++) x[i] -= u[unit * columns + k] * u[i * columns + k];
      norm += x[i] * x[i];
    }
    for (int64_t i = 0; i < m && norm > most; i++) best[i] = x[i] / sqrt(norm);
    if (norm > most) most = norm;
  }
  for (int64_t i = 0; i < m; i++) u[i * columns + j] = best[i];
}

static bool run_svd(const struct op *op, const struct array *in, struct array *out,
                    const struct places *at)
{
  (void)op;
  (void)at;
  int last = in->shape.ndim - 1;
  if (last < 1 || out[0].shape.ndim != last + 1 || out[2].shape.ndim != last + 1) return false;
  int64_t m = in->shape.size[last - 1], n = in->shape.size[last], k = m < n ? m : n;
  int64_t columns = out[0].shape.size[last], rows = out[2].shape.size[last - 1];
  bool all = columns == m && rows == n;
  if (out[0].shape.size[last - 1] != m || out[2].shape.size[last] != n ||
      out[1].shape.size[last - 1] != k || (!all && (columns != k || rows != k)))
    return false;
  for (int64_t b = 0; b < elements(in->shape) / (m * n); b++) {
    double *a = in->at + b * m * n, *u = out[0].at + b * m * columns, *s = out[1].at + b * k;
    double *v = take((size_t)(n * n) * sizeof *v), *square = take((size_t)(n * n) * sizeof *v);
    double *values = take((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n * n; i++)
      for (int64_t r = 0; r < m; r++) square[i] += a[r * n + i / n] * a[r * n + i % n];
    jacobi(n, square, v, values);
    for (int64_t j = 0; j < k; j++) {
      s[j] = sqrt(fmax(values[n - 1 - j], 0));
      for (int64_t r = 0; r < m; r++) {
        u[r * columns + j] = 0;
        for (int64_t i = 0; i < n; i++)
          u[r * columns + j] += a[r * n + i] * v[i * n + n - 1 - j] / s[j];
      }
    }
    for (int64_t j = k; j < columns; j++) complete_column(m, columns, u, j);
    for (int64_t j = 0; j < rows; j++)
      for (int64_t i = 0; i < n; i++) out[2].at[(b * rows + j) * n + i] = v[i * n + n - 1 - j];
  }
  return true;
}

/* The number of each token's document, and its place in it. */
static bool run_documents(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  (void)at;
  int dim = named_dim(op);
  int64_t size = in->shape.size[dim], after = 1;
  for (int d = dim + 1; d < in->shape.ndim; d++) after *= in->shape.size[d];
  if (!same_shape(in->shape, out[0].shape) || !same_shape(in->shape, out[1].shape)) return false;
  for (int64_t i = 0, n = elements(in->shape); i < n; i++) {
    int64_t j = i / after % size;
    bool begins = j == 0 || in->at[i - after] == (double)number_of(op, "eos");
    out[0].at[i] = j == 0 ? 0 : out[0].at[i - after] + begins;
    out[1].at[i] = begins ? 0 : out[1].at[i - after] + 1;
  }
  return true;
}

/* Of the dimensions that vanish, seen as one. The first of equal ones. */
static bool run_argmax(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  if (!same_shape(reduced_shape(op, in->shape), out->shape)) return false;
  struct array best = zeros(out->shape);
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) best.at[i] = -INFINITY;
  for (int64_t i = 0, n = elements(in->shape); i < n; i++) {
    int64_t index[MAX_DIMS], own[MAX_DIMS], flat = 0;
    indices_of(in->shape, i, index);
    reduced_index(op, in->shape.ndim, index, own);
    for (int d = 0; d < in->shape.ndim; d++)
      if (op->dims >> d & 1) flat = flat * in->shape.size[d] + index[d];
    int64_t to = place_in_array(out->shape, own);
    if (in->at[i] <= best.at[to]) continue;
    best.at[to] = in->at[i];
    out->at[to] = (double)flat;
  }
  return true;
}

/* --------------------------------------------------------------------------------- attention */

/* The sizes of an attention's parts: batch, groups of r heads that share keys and values, queries,
   keys, and the widths of keys and values. */
struct heads {
  int64_t b, g, r, q, k, d, e, first_q, first_k;
  /* Its options, or NULL. */
  const struct array *bias, *document, *key_document, *place, *key_place, *sink;
};

static bool is_broadcast_to(struct shape s, struct shape whole)
{
  for (int d = 0; d < whole.ndim; d++)
    if (s.size[d] != 1 && s.size[d] != whole.size[d]) return false;
  return s.ndim == whole.ndim;
}

/* Finds the further inputs; false if they do not fit. */
static bool options_of(const struct op *op, const struct array *further, struct heads *h)
{
  struct shape scores = {4, {h->b, h->g * h->r, h->q, h->k}}, sinks = {1, {h->g * h->r}};
  struct shape queries = {2, {h->b, h->q}}, keys = {2, {h->b, h->k}};
  bool of_bias = op->kind == OP_attention_back_bias;
  if (of_bias || number_of(op, "biased")) h->bias = further++;
  if (!of_bias && number_of(op, "documents")) h->document = further++, h->key_document = further++;
  if (!of_bias && number_of(op, "places")) h->place = further++, h->key_place = further++;
  if (op->kind == OP_attention && number_of(op, "sinks")) h->sink = further++;
  if (h->place && (elements(h->place->shape) != h->q || elements(h->key_place->shape) != h->k))
    return false;
  return (!h->bias || is_broadcast_to(h->bias->shape, scores)) &&
         (!h->document ||
          (same_shape(h->document->shape, queries) && same_shape(h->key_document->shape, keys))) &&
         (!h->sink || same_shape(h->sink->shape, sinks));
}

static bool heads_of(struct shape q, struct shape k, struct shape v, struct heads *h)
{
  if (q.ndim != 4 || k.ndim != 4 || v.ndim != 4) return false;
  *h = (struct heads){.b = q.size[0],
                      .g = k.size[1],
                      .q = q.size[2],
                      .k = k.size[2],
                      .d = q.size[3],
                      .e = v.size[3]};
  if (h->g ? q.size[1] % h->g : q.size[1]) return false;
  h->r = h->g ? q.size[1] / h->g : 1;
  struct shape of_k = {4, {h->b, h->g, h->k, h->d}}, of_v = {4, {h->b, h->g, h->k, h->e}};
  return same_shape(k, of_k) && same_shape(v, of_v);
}

/* An element of a tensor of four dimensions. */
static inline double *to4(struct array t, int64_t a, int64_t b, int64_t c, int64_t d)
{
  const int64_t *n = t.shape.size;
  return &t.at[((a * n[1] + b) * n[2] + c) * n[3] + d];
}

static inline double at4(struct array t, int64_t a, int64_t b, int64_t c, int64_t d)
{
  return *to4(t, a, b, c, d);
}

/* The score of query i and key j; minus infinity where the query may not see the key. */
static double score(const struct op *op, const struct heads *h, struct array q, struct array k,
                    int64_t b, int64_t head, int64_t i, int64_t j)
{
  int64_t ahead = j + h->first_k - i - h->first_q, window = number_of(op, "window");
  if (number_of(op, "causal") && ahead > 0) return -INFINITY;
  if (window && (ahead <= -window || ahead >= window)) return -INFINITY;
  if (h->place) {
    int64_t by_place = (int64_t)(h->key_place->at[j] - h->place->at[i]);
    int64_t reach = number_of(op, "reach");
    if (number_of(op, "places") == 1 && by_place > 0) return -INFINITY;
    if (reach && (by_place <= -reach || by_place >= reach)) return -INFINITY;
  }
  if (h->document && h->document->at[b * h->q + i] != h->key_document->at[b * h->k + j])
    return -INFINITY;
  double sum = 0;
  for (int64_t d = 0; d < h->d; d++) sum += at4(q, b, head, i, d) * at4(k, b, head / h->r, j, d);
  sum *= op->scalar;
  if (op->softcap != 0) sum = op->softcap * tanh(sum / op->softcap);
  if (!h->bias) return sum;
  const int64_t *size = h->bias->shape.size;
  return sum + at4(*h->bias, size[0] == 1 ? 0 : b, size[1] == 1 ? 0 : head, size[2] == 1 ? 0 : i,
                   size[3] == 1 ? 0 : j);
}

static void attend(const struct op *op, const struct heads *h, const struct array *in,
                   struct array *out, int64_t b, int64_t head, int64_t i)
{
  double sum = h->sink ? exp(h->sink->at[head]) : 0;
  for (int64_t j = 0; j < h->k; j++) sum += exp(score(op, h, in[0], in[1], b, head, i, j));
  for (int64_t j = 0; sum > 0 && j < h->k; j++) {
    double weight = exp(score(op, h, in[0], in[1], b, head, i, j)) / sum;
    for (int64_t e = 0; e < h->e; e++)
      *to4(out[0], b, head, i, e) += weight * at4(in[2], b, head / h->r, j, e);
  }
  out[1].at[place_in_array(out[1].shape, (int64_t[]){b, head, i})] = log(sum);
}

static bool run_attention(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  struct heads h;
  if (!heads_of(in[0].shape, in[1].shape, in[2].shape, &h)) return false;
  if (!options_of(op, in + 3, &h)) return false;
  h.first_q = at->in[0].first[2];
  h.first_k = at->in[1].first[2];
  struct shape made = {4, {h.b, h.g * h.r, h.q, h.e}}, sums = {3, {h.b, h.g * h.r, h.q}};
  if (!same_shape(made, out[0].shape) || !same_shape(sums, out[1].shape)) return false;
  for (int64_t b = 0; b < h.b; b++)
    for (int64_t head = 0; head < h.g * h.r; head++)
      for (int64_t i = 0; i < h.q; i++) attend(op, &h, in, out, b, head, i);
  return true;
}

/* Inputs: q, k, v, the caches of keys and values, each sequence's slot in these and its first
   token's number. A key is a new one from there on, else the cache's. */
static bool run_cached_attention(const struct op *op, const struct array *in, struct array *out,
                                 const struct places *at)
{
  (void)at;
  const bool latent = op->kind == OP_cached_latent_attention;
  const struct array keys = in[latent ? 2 : 3], values = in[latent ? 2 : 4], v = in[latent ? 1 : 2];
  const struct array slots = in[op->nin - 2], starts = in[op->nin - 1];
  const struct shape s = in[0].shape, cache = keys.shape;
  const int64_t window = number_of(op, "window"), r = s.size[2], tokens = s.size[3];
  const int64_t width = latent ? out[0].shape.size[4] : v.shape.size[3];
  struct shape made = {5, {s.size[0], s.size[1], r, tokens, width}};
  if (!same_shape(made, out[0].shape)) return false;
  for (int64_t b = 0; b < s.size[0]; b++)
    for (int64_t head = 0; head < s.size[1] * r; head++)
      for (int64_t t = 0; t < tokens; t++) {
        const int64_t row = (b * s.size[1] * r + head) * tokens + t;
        const int64_t slot = (int64_t)slots.at[b], start = (int64_t)starts.at[b],
                      newest = start + t;
        double weight[256], sum = 0;
        must(cache.size[2] <= 256, "a longer context than the reference has room for");
        for (int64_t j = 0; j < cache.size[2] && slot >= 0; j++) {
          const bool sees = j <= newest && (!window || j > newest - window);
          double product = 0;
          for (int64_t d = 0; d < s.size[4]; d++)
            product += in[0].at[row * s.size[4] + d] * (j < start ? at4(keys, slot, head / r, j, d)
                                                        : j - start < tokens
                                                            ? at4(in[1], b, head / r, j - start, d)
                                                            : 0);
          weight[j] = sees ? exp(op->scalar * product) : 0;
          sum += weight[j];
        }
        for (int64_t j = 0; j < cache.size[2] && slot >= 0 && sum > 0; j++)
          for (int64_t e = 0; e < width; e++)
            out[0].at[row * width + e] += weight[j] / sum *
                                          (j < start            ? at4(values, slot, head / r, j, e)
                                           : j - start < tokens ? at4(v, b, head / r, j - start, e)
                                                                : 0);
      }
  return true;
}

/* Inputs: new tokens, the cache, each sequence's slot in it and its first token's number. */
static bool run_recent(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at, (void)op;
  const int64_t *s = in[0].shape.size, room = in[1].shape.size[1], wide = out[0].shape.size[1];
  const int64_t back = wide - s[1];
  for (int64_t b = 0; b < s[0]; b++)
    for (int64_t i = 0; i < wide; i++)
      for (int64_t d = 0; d < s[2]; d++) {
        const int64_t slot = (int64_t)in[2].at[b], token = (int64_t)in[3].at[b] + i - back;
        if (slot < 0 || token < 0) continue;
        out[0].at[(b * wide + i) * s[2] + d] =
            i < back ? in[1].at[(slot * room + token % room) * s[2] + d]
                     : in[0].at[(b * s[1] + i - back) * s[2] + d];
      }
  return true;
}

static bool run_all_tokens(const struct op *op, const struct array *in, struct array *out,
                           const struct places *at)
{
  (void)op;
  const int64_t *s = in[0].shape.size, room = in[1].shape.size[1], first = at->in[1].first[1];
  for (int64_t i = 0; i < s[0] * room * s[2]; i++) {
    const int64_t d = i % s[2], token = i / s[2] % room, b = i / s[2] / room;
    const int64_t slot = (int64_t)in[2].at[b], fresh = first + token - (int64_t)in[3].at[b];
    if (slot >= 0 && fresh < s[1])
      out[0].at[i] = fresh < 0 ? in[1].at[(slot * room + token) * s[2] + d]
                               : in[0].at[(b * s[1] + fresh) * s[2] + d];
  }
  return true;
}

/* Inputs: the cache, what a text begins with, each sequence's slot and its first token's number. */
static bool run_recall_state(const struct op *op, const struct array *in, struct array *out,
                             const struct places *at)
{
  (void)at, (void)op;
  const int64_t n = elements(in[1].shape);
  for (int64_t b = 0; b < in[2].shape.size[0]; b++) {
    const int64_t slot = (int64_t)in[2].at[b];
    const bool begins = slot < 0 || in[3].at[b] == 0;
    for (int64_t i = 0; i < n; i++)
      out[0].at[b * n + i] = begins ? in[1].at[i] : in[0].at[slot * n + i];
  }
  return true;
}

static bool run_keep_state(const struct op *op, const struct array *in, struct array *out,
                           const struct places *at)
{
  (void)at, (void)op;
  for (int64_t b = 0; b < in[3].shape.size[0]; b++) out[0].at[b] = in[3].at[b];
  return true;
}

static bool run_running_sum(const struct op *op, const struct array *in, struct array *out,
                            const struct places *at)
{
  (void)at, (void)op;
  const int64_t *s = in[0].shape.size, room = in[1].shape.size[1];
  for (int64_t b = 0; b < s[0]; b++)
    for (int64_t d = 0; d < s[2]; d++) {
      const int64_t slot = (int64_t)in[2].at[b], start = (int64_t)in[3].at[b];
      if (slot < 0) continue;
      double sum = start > 0 ? in[1].at[(slot * room + (start - 1) % room) * s[2] + d] : 0;
      for (int64_t t = 0; t < s[1]; t++)
        out[0].at[(b * s[1] + t) * s[2] + d] = sum += in[0].at[(b * s[1] + t) * s[2] + d];
    }
  return true;
}

static bool run_running_max(const struct op *op, const struct array *in, struct array *out,
                            const struct places *at)
{
  (void)at;
  const double sign = number_of(op, "least") ? -1 : 1;
  const int64_t *s = in[0].shape.size, room = in[1].shape.size[1];
  for (int64_t b = 0; b < s[0]; b++)
    for (int64_t d = 0; d < s[2]; d++) {
      const int64_t slot = (int64_t)in[2].at[b], start = (int64_t)in[3].at[b];
      if (slot < 0) continue;
      const double *before = &in[1].at[((slot * room + (start + room - 1) % room) * s[2] + d) * 2];
      double best = before[0], place = before[1];
      for (int64_t t = 0; t < s[1]; t++) {
        const int64_t i = (b * s[1] + t) * s[2] + d;
        if (start + t == 0 || sign * in[0].at[i] >= sign * best)
          best = in[0].at[i], place = (double)(start + t);
        out[0].at[i] = best;
        out[1].at[i] = trunc(place);
      }
    }
  return true;
}

/* An element of a cache in parts. */
static double at5(struct array t, int64_t slot, int64_t part, int64_t head, int64_t c, int64_t d)
{
  const int64_t *n = t.shape.size;
  return t.at[(((slot * n[1] + part) * n[2] + head) * n[3] + c) * n[4] + d];
}

/* The same inputs, with caches in parts; of each part the attention over its keys, and the
   logarithm of the sum. */
static bool run_cached_attention_parts(const struct op *op, const struct array *in,
                                       struct array *out, const struct places *at)
{
  const struct shape s = in[0].shape, cache = in[3].shape, v = in[2].shape;
  const int64_t window = number_of(op, "window"), r = s.size[2], tokens = s.size[3];
  const int64_t parts = cache.size[1], length = cache.size[3], width = v.size[3];
  const int64_t heads = s.size[1] * r, first_part = at->in[3].first[1];
  struct shape made = {6, {parts, s.size[0], s.size[1], r, tokens, width}};
  if (!same_shape(made, out[0].shape)) return false;
  for (int64_t i = 0, n = parts * s.size[0] * heads * tokens; i < n; i++) {
    const int64_t t = i % tokens, head = i / tokens % heads, b = i / tokens / heads % s.size[0];
    const int64_t part = i / tokens / heads / s.size[0], row = i % (s.size[0] * heads * tokens);
    const int64_t slot = (int64_t)in[5].at[b], start = (int64_t)in[6].at[b], newest = start + t;
    double sum = 0;
    for (int64_t c = 0; c < length && slot >= 0; c++) {
      const int64_t j = (first_part + part) * length + c;
      const bool fresh = j >= start;
      if (j > newest || (window && j <= newest - window)) continue;
      double product = 0;
      for (int64_t d = 0; d < s.size[4]; d++)
        product += in[0].at[row * s.size[4] + d] * (fresh ? at4(in[1], b, head / r, j - start, d)
                                                          : at5(in[3], slot, part, head / r, c, d));
      const double weight = exp(op->scalar * product);
      sum += weight;
      for (int64_t e = 0; e < width; e++)
        out[0].at[i * width + e] += weight * (fresh ? at4(in[2], b, head / r, j - start, e)
                                                    : at5(in[4], slot, part, head / r, c, e));
    }
    for (int64_t e = 0; e < width && sum > 0; e++) out[0].at[i * width + e] /= sum;
    out[1].at[i] = log(sum);
  }
  return true;
}

/* Inputs: the output's gradient, q, k, v, the output, the logarithms of the rows' sums. With the
   weights w = exp(score - log of the sum): dv = w g; ds = w (g v - g y); dq = ds k; dk = ds q. */
static void attend_back(const struct op *op, const struct heads *h, const struct array *in,
                        struct array *out, int64_t b, int64_t head, int64_t i)
{
  double log_sum = in[5].at[place_in_array(in[5].shape, (int64_t[]){b, head, i})], along = 0;
  int64_t group = head / h->r;
  bool of_bias = op->kind == OP_attention_back_bias;
  for (int64_t e = 0; e < h->e; e++) along += at4(in[0], b, head, i, e) * at4(in[4], b, head, i, e);
  for (int64_t j = 0; log_sum > -INFINITY && j < h->k; j++) {
    double w = exp(score(op, h, in[1], in[2], b, head, i, j) - log_sum), slope = -along;
    for (int64_t e = 0; e < h->e; e++) {
      slope += at4(in[0], b, head, i, e) * at4(in[3], b, group, j, e);
      if (!of_bias) *to4(out[2], b, group, j, e) += w * at4(in[0], b, head, i, e);
    }
    if (of_bias) {
      const int64_t *size = out[0].shape.size;
      *to4(out[0], size[0] == 1 ? 0 : b, size[1] == 1 ? 0 : head, size[2] == 1 ? 0 : i, j) +=
          w * slope;
      continue;
    }
    double sum = 0, steep = 1;
    for (int64_t d = 0; d < h->d; d++)
      sum += at4(in[1], b, head, i, d) * at4(in[2], b, group, j, d);
    if (op->softcap != 0) steep = 1 - pow(tanh(op->scalar * sum / op->softcap), 2);
    for (int64_t d = 0; d < h->d; d++) {
      *to4(out[0], b, head, i, d) += op->scalar * w * slope * steep * at4(in[2], b, group, j, d);
      *to4(out[1], b, group, j, d) += op->scalar * w * slope * steep * at4(in[1], b, head, i, d);
    }
  }
}

static bool run_attention_back(const struct op *op, const struct array *in, struct array *out,
                               const struct places *at)
{
  struct heads h;
  if (!heads_of(in[1].shape, in[2].shape, in[3].shape, &h)) return false;
  if (!options_of(op, in + 6, &h)) return false;
  h.first_q = at->in[1].first[2];
  h.first_k = at->in[2].first[2];
  struct shape made = {4, {h.b, h.g * h.r, h.q, h.e}}, sums = {3, {h.b, h.g * h.r, h.q}};
  if (!same_shape(in[0].shape, made) || !same_shape(in[4].shape, made) ||
      !same_shape(in[5].shape, sums))
    return false;
  for (int i = 0; i < op->nout; i++)
    if (!same_shape(out[i].shape, in[op->nout == 1 ? 6 : 1 + i].shape)) return false;
  for (int64_t b = 0; b < h.b; b++)
    for (int64_t head = 0; head < h.g * h.r; head++)
      for (int64_t i = 0; i < h.q; i++) attend_back(op, &h, in, out, b, head, i);
  return true;
}

/* --------------------------------------------------------------------------------- convolution */

/* How a window moves over an image, along y (0) and x (1). */
struct window {
  int64_t size[2], stride[2], pad[2], dilation[2];
};

/* The row or column of the image under tap t of the window at place p; or NONE, beyond the edge. */
static int64_t under(const struct window *w, int axis, int64_t p, int64_t t, int64_t size)
{
  int64_t at = p * w->stride[axis] - w->pad[axis] + t * w->dilation[axis];
  return at >= 0 && at < size ? at : NONE;
}

static struct window window_of(const struct op *op, struct shape weight)
{
  struct window w = {.stride = {number_of(op, "stride_y"), number_of(op, "stride_x")},
                     .pad = {number_of(op, "pad_y"), number_of(op, "pad_x")}};
  bool pool = op->kind == OP_max_pool2d || op->kind == OP_max_pool2d_back;
  for (int a = 0; a < 2; a++) {
    w.size[a] = pool ? number_of(op, a ? "kernel_x" : "kernel_y") : weight.size[2 + a];
    w.dilation[a] = pool ? 1 : number_of(op, a ? "dilation_x" : "dilation_y");
  }
  return w;
}

/* y[n, o, p, q] = sum of x[n, c, y, x] w[o, c, k, l] over c of o's group, k and l, and what follows
   for the gradients: of the three tensors the one that is made gets the product of the others. */
static bool convolve(const struct op *op, struct array image, struct array weight,
                     struct array made, const struct array *to)
{
  if (image.shape.ndim != 4 || weight.shape.ndim != 4 || made.shape.ndim != 4) return false;
  const int64_t *x = image.shape.size, *w = weight.shape.size, *y = made.shape.size;
  if (x[0] != y[0] || w[0] != y[1]) return false;
  if (w[1] == 0 || w[0] == 0) return x[1] == 0 || w[1] == 0 || w[0] == 0;
  int64_t groups = x[1] / w[1];
  if (x[1] % w[1] || (groups && w[0] % groups)) return false;
  struct window window = window_of(op, weight.shape);
  struct shape space = {7, {y[0], y[1], y[2], y[3], w[1], w[2], w[3]}};
  int64_t i[MAX_DIMS] = {0};
  if (!elements(space) || !groups) return true;
  do {
    int64_t row = under(&window, 0, i[2], i[5], x[2]), column = under(&window, 1, i[3], i[6], x[3]);
    if (row == NONE || column == NONE) continue;
    double *of_x = to4(image, i[0], i[1] / (w[0] / groups) * w[1] + i[4], row, column);
    double *of_w = to4(weight, i[1], i[4], i[5], i[6]), *of_y = to4(made, i[0], i[1], i[2], i[3]);
    if (to->at == image.at)
      *of_x += *of_w * *of_y;
    else if (to->at == weight.at)
      *of_w += *of_x * *of_y;
    else
      *of_y += *of_x * *of_w;
  } while (next_index(space, i));
  return true;
}

static bool run_conv2d(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)at;
  if (op->kind == OP_conv2d) return convolve(op, in[0], in[1], *out, out);
  if (op->kind == OP_conv2d_back_input) return convolve(op, *out, in[1], in[0], out);
  return convolve(op, in[1], *out, in[0], out);
}

/* Images are all dimensions but the last two. */
static bool pools_to(struct shape image, struct shape made)
{
  int n = image.ndim;
  if (n != made.ndim || n < 2) return false;
  for (int d = 0; d < n - 2; d++)
    if (image.size[d] != made.size[d]) return false;
  return true;
}

/* The largest element under the window, and the place of the first that equals `expected`, or of
   the first of the largest where expected is NULL. */
static double largest(const struct window *w, struct array image, const int64_t *index,
                      const double *expected, int64_t *place)
{
  int n = image.shape.ndim;
  double best = -INFINITY;
  int64_t at[MAX_DIMS];
  memcpy(at, index, sizeof at);
  *place = NONE;
  for (int64_t k = 0; k < w->size[0]; k++)
    for (int64_t l = 0; l < w->size[1]; l++) {
      at[n - 2] = under(w, 0, index[n - 2], k, image.shape.size[n - 2]);
      at[n - 1] = under(w, 1, index[n - 1], l, image.shape.size[n - 1]);
      if (at[n - 2] == NONE || at[n - 1] == NONE) continue;
      int64_t here = place_in_array(image.shape, at);
      if (expected ? *place == NONE && image.at[here] == *expected : image.at[here] > best)
        *place = here;
      if (image.at[here] > best) best = image.at[here];
    }
  return best;
}

static bool run_max_pool2d(const struct op *op, const struct array *in, struct array *out,
                           const struct places *at)
{
  (void)at;
  if (!pools_to(in->shape, out->shape)) return false;
  struct window w = window_of(op, in->shape);
  for (int64_t i = 0, n = elements(out->shape); i < n; i++) {
    int64_t index[MAX_DIMS], place;
    indices_of(out->shape, i, index);
    out->at[i] = largest(&w, in[0], index, NULL, &place);
  }
  return true;
}

/* Inputs: the output's gradient, the image, the output. */
static bool run_max_pool2d_back(const struct op *op, const struct array *in, struct array *out,
                                const struct places *at)
{
  (void)at;
  if (!pools_to(in[1].shape, in[0].shape) || !same_shape(in[0].shape, in[2].shape) ||
      !same_shape(in[1].shape, out->shape))
    return false;
  struct window w = window_of(op, in[1].shape);
  for (int64_t i = 0, n = elements(in[0].shape); i < n; i++) {
    int64_t index[MAX_DIMS], place;
    indices_of(in[0].shape, i, index);
    largest(&w, in[1], index, &in[2].at[i], &place);
    if (place != NONE) out->at[place] += in[0].at[i];
  }
  return true;
}

/* ----------------------------------------------------------------- operators that plans declare */

/* y[i] = x[i] / the root of the sum of squares of the row, as in "...d!->...d!". */
static bool run_unit_rows(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  (void)op;
  (void)at;
  if (!same_shape(in->shape, out->shape)) return false;
  int64_t width = in->shape.size[in->shape.ndim - 1];
  for (int64_t i = 0, n = elements(in->shape); i < n; i++) {
    double sum = 0;
    for (int64_t k = 0; k < width; k++) sum += pow(in->at[i / width * width + k], 2);
    out->at[i] = in->at[i] / sqrt(sum);
  }
  return true;
}

/* y[a b] = x[a, b] w[b]; z[a] = the largest of them: "ab,b->(ab),a:max". */
static bool run_merged_rows(const struct op *op, const struct array *in, struct array *out,
                            const struct places *at)
{
  (void)op;
  (void)at;
  if (in[0].shape.ndim != 2 || in[1].shape.ndim != 1) return false;
  int64_t a = in[0].shape.size[0], b = in[0].shape.size[1];
  if (in[1].shape.size[0] != b || !same_shape(out[0].shape, (struct shape){1, {a * b}}) ||
      !same_shape(out[1].shape, (struct shape){1, {a}}))
    return false;
  for (int64_t i = 0; i < a; i++) {
    out[1].at[i] = -INFINITY;
    for (int64_t j = 0; j < b; j++) {
      double y = in[0].at[i * b + j] * in[1].at[j];
      out[0].at[i * b + j] = y;
      out[1].at[i] = fmax(out[1].at[i], y);
    }
  }
  return true;
}

/* Each element times its row's index in the whole: "a@b->a@b". */
static bool run_times_row(const struct op *op, const struct array *in, struct array *out,
                          const struct places *at)
{
  (void)op;
  if (in->shape.ndim != 2 || !same_shape(in->shape, out->shape)) return false;
  int64_t width = in->shape.size[1];
  for (int64_t i = 0, n = elements(in->shape); i < n; i++)
    out->at[i] = in->at[i] * (double)(at->in[0].first[0] + i / width);
  return true;
}

static const struct {
  struct custom custom;
  reference *reference;
} customs[] = {
    {{.name = "unit_rows", .rule = "...d!->...d!", .linear = ""}, run_unit_rows},
    {{.name = "merged_rows", .rule = "ab,b->(ab),a:max", .linear = ""}, run_merged_rows},
    {{.name = "times_row", .rule = "a@b->a@b", .linear = "a"}, run_times_row},
};

/* Declares them in the graph, once; gives the number of the one of that name. */
__attribute__((unused)) static int custom_of_name(const char *name)
{
  enum { CUSTOMS = sizeof customs / sizeof *customs };
  if (!graph->custom) graph->custom = alloc(CUSTOMS * sizeof *graph->custom);
  for (; graph->ncustom < CUSTOMS; graph->ncustom++) {
    struct custom *c = &graph->custom[graph->ncustom];
    *c = customs[graph->ncustom].custom;
    for (int i = 0; i < MAX_INPUTS; i++) c->backward[i] = NONE;
  }
  int i = 0;
  while (strcmp(graph->custom[i].name, name)) i++;
  return i;
}

static bool run_custom(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  return customs[op->custom].reference(op, in, out, at);
}

/* ------------------------------------------------------------------------------------- all rows */

/* Of a row's reference; NULL if it has none. */
static reference *reference_of(enum op_kind kind)
{
  double x[MAX_INPUTS] = {1, 1, 1}, y;
  switch (kind) {
  case OP_matmul:
  case OP_permute:
    return run_einsum;
  case OP_cast:
    return run_cast;
  case OP_index_within:
    return run_index_within;
  case OP_dropout:
    return run_dropout;
  case OP_uniform_like:
  case OP_normal_like:
    return run_random;
  case OP_tril:
  case OP_triu:
    return run_triangle;
  case OP_rotary:
  case OP_rotary_pairs:
    return run_rotary;
  case OP_sum:
  case OP_amax:
  case OP_amax_abs:
  case OP_amin:
    return run_reduce;
  case OP_float8_scale:
  case OP_to_float8:
    return run_elements;
  case OP_expand:
    return run_expand;
  case OP_full:
  case OP_index:
    return run_full;
  case OP_view:
    return run_view;
  case OP_cat:
    return run_cat;
  case OP_scan_take:
    return run_scan_take;
  case OP_scan_put:
    return run_scan_put;
  case OP_scan_stack:
    return run_scan_stack;
  case OP_narrow:
  case OP_pad:
  case OP_every:
  case OP_spread:
    return run_picks;
  case OP_gather:
    return run_gather;
  case OP_place:
    return run_place;
  case OP_scatter_add:
    return run_scatter_add;
  case OP_scatter:
    return run_scatter;
  case OP_index_select:
    return run_index_select;
  case OP_index_add:
    return run_index_add;
  case OP_count_places:
    return run_count_places;
  case OP_dispatch:
  case OP_combine:
  case OP_combine_back:
    return run_at_places;
  case OP_grouped_linear:
  case OP_grouped_linear_back_input:
  case OP_grouped_linear_back_weight:
    return run_grouped_linear;
  case OP_embedding:
    return run_embedding;
  case OP_embedding_back:
    return run_embedding_back;
  case OP_embedding_int8:
    return run_embedding_int8;
  case OP_from_int8:
    return run_from_int8;
  case OP_from_nf4:
    return run_from_nf4;
  case OP_linear_bf16:
  case OP_linear_bf16_transposed:
  case OP_linear_int8:
  case OP_linear_int8_transposed:
    return run_stored_linear;
  case OP_cumsum:
    return run_cumsum;
  case OP_argsort:
    return run_argsort;
  case OP_argmax:
    return run_argmax;
  case OP_cummax:
    return run_cummax;
  case OP_eigh:
    return run_eigh;
  case OP_svd:
    return run_svd;
  case OP_documents:
    return run_documents;
  case OP_attention:
    return run_attention;
  case OP_attention_back:
  case OP_attention_back_bias:
    return run_attention_back;
  case OP_cached_attention:
  case OP_cached_latent_attention:
    return run_cached_attention;
  case OP_cached_attention_parts:
    return run_cached_attention_parts;
  case OP_recent:
    return run_recent;
  case OP_running_sum:
    return run_running_sum;
  case OP_running_max:
    return run_running_max;
  case OP_all_tokens:
    return run_all_tokens;
  case OP_recall_state:
    return run_recall_state;
  case OP_keep_state:
    return run_keep_state;
  case OP_conv2d:
  case OP_conv2d_back_input:
  case OP_conv2d_back_weight:
    return run_conv2d;
  case OP_max_pool2d:
    return run_max_pool2d;
  case OP_max_pool2d_back:
    return run_max_pool2d_back;
  case OP_custom:
    return run_custom;
  default:
    return element(kind, x, 1, &y) ? run_elements : NULL;
  }
}

__attribute__((unused)) static bool has_reference(enum op_kind kind)
{
  return reference_of(kind) != NULL;
}

/* All there is, from the first element on. */
static struct places everything(const struct op *op, const struct array *in,
                                const struct array *out)
{
  struct places p = {0};
  for (int i = 0; i < op->nin; i++) p.in[i].whole = in[i].shape;
  for (int k = 0; k < op->nout; k++) p.out[k].whole = out[k].shape;
  return p;
}

/* What an operation with a rule makes of tensors, whole or parts, put into out[0 .. nout - 1],
   whose shapes are given and whose elements are zero. `at` says where the parts begin; NULL: at the
   first element. False if the parts do not fit each other. */
static bool evaluate(const struct op *op, const struct array *in, struct array *out,
                     const struct places *at)
{
  reference *run = reference_of(op->kind);
  must(run != NULL, "no reference for %s", op_row[op->kind].name);
  struct places all;
  if (!at) {
    all = everything(op, in, out);
    at = &all;
  }
  return run(op, in, out, at);
}

/* Where the parts of a rank begin, as far as the operation gets it. Each operand has its layout. */
__attribute__((unused)) static struct places places_at(const struct op *op, const struct letters *l,
                                                       const struct layout *in,
                                                       const struct layout *out, int rank)
{
  struct places p = {0};
  for (int k = 0; k < op->nin + op->nout; k++) {
    bool input = k < op->nin;
    int i = input ? k : k - op->nin, value = input ? op->in[i] : op->out + i;
    struct indices *place = input ? &p.in[i] : &p.out[i];
    const struct axis *axis = input ? l->in[i] : l->out[i];
    struct shape whole = graph->value[value].shape;
    struct part part = part_of(whole, input ? in[i] : out[i], rank);
    place->whole = part.shape;
    for (int d = 0; d < whole.ndim; d++) {
      if (axis[d].n != 1 || !l->gets_start[axis[d].letter[0]]) continue;
      place->whole.size[d] = whole.size[d];
      place->first[d] = part.first[d];
    }
  }
  return p;
}

#endif
