#include "cuda/kernels/copies.h"
#include "cuda/kernels/math.h"
#include "cuda/kernels/segments.h"
#include "cuda/streams.h"
#include "kernels.h"
#include "base/program.h"
#include "base/target.h"
#include "$memory$"
#include "$tensors$"
$finite$
$communicators$$products$
$learning_rate$$functions$
