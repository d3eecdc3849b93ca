$about$
static double $name$(int t)
{
$unused$$rate$
}
