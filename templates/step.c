#include "cpu_copies.h"
#include "cpu_math.h"
#include "cpu_parcels.h"
#include "kernels.h"
#include "program.h"

#include <math.h>
#include <stdalign.h>

$memory$
static struct memory *m;
$communicators$
$learning_rate$$functions$
