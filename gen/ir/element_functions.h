/* clang-format off */
/* element_functions.h: the functions that elements of ops.h may call, in C and in CUDA. Every other
   list of them expands from here. To add one: a row here, its meaning in known[] of
   tests/unit/test_ops.c and, where C has no such function, its text in runtime/base/elements.h.

     FUNCTION(name, header, fields)

   header     Where a program finds it: MATH_H, of C; ELEMENTS_H, INDICES_H: of elements.h and
              indices.h in runtime/base, which a program then includes.
   fields     .cheap  A kernel rather computes it again than reads what was computed once, before
                      the first step.
              .whole  Its result is a whole number. */

FUNCTION(cosf,            MATH_H, )
FUNCTION(erff,            MATH_H, )
FUNCTION(expf,            MATH_H, )
FUNCTION(expm1f,          MATH_H, )
FUNCTION(fabsf,           MATH_H, .cheap = true)
FUNCTION(lgammaf,         MATH_H, )
FUNCTION(log1pf,          MATH_H, )
FUNCTION(logf,            MATH_H, )
FUNCTION(powf,            MATH_H, )
FUNCTION(sinf,            MATH_H, )
FUNCTION(sqrtf,           MATH_H, )
FUNCTION(tanhf,           MATH_H, )
FUNCTION(dropped,         ELEMENTS_H, .cheap = true)
FUNCTION(digamma,         ELEMENTS_H, )
FUNCTION(float8_scale,    ELEMENTS_H, .cheap = true)
FUNCTION(to_float8,       ELEMENTS_H, .cheap = true)
FUNCTION(gelu_tanh_slope, ELEMENTS_H, )
FUNCTION(inverse_erf,     ELEMENTS_H, )
FUNCTION(silu_slope,      ELEMENTS_H, )
FUNCTION(trigamma,        ELEMENTS_H, )
FUNCTION(is_training,     ELEMENTS_H, .cheap = true, .whole = true)
FUNCTION(index_within,    INDICES_H, .cheap = true, .whole = true)
