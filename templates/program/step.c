#include "cpu/kernels/copies.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/segments.h"
#include "kernels.h"
#include "base/program.h"
#include "$memory$"
#include "$tensors$"
$finite$
#include <math.h>

$communicators$
$learning_rate$$functions$
