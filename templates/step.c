#include "cpu_copies.h"
#include "cpu_math.h"
#include "cpu_segments.h"
#include "kernels.h"
#include "program.h"
#include "$memory$"
#include "$tensors$"
$finite$
#include <math.h>

$communicators$
$learning_rate$$functions$
