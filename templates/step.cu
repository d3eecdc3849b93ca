#include "cuda_copies.h"
#include "cuda_math.h"
#include "cuda_segments.h"
#include "cuda_streams.h"
#include "kernels.h"
#include "program.h"
#include "target.h"
#include "$memory$"
#include "$tensors$"
$finite$
$communicators$$products$
$learning_rate$$functions$
