// The groups of ranks, in the order of members[] in the file of the rank.
static const struct group groups[] = {
$groups$};

$validated$$products$// program.h explains the fields.$unnamed$
$declaration$const struct program $name$_program = {
$fields$};
