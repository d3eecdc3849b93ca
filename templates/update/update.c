void $name$($parameters$)
{
$clip$$threads$  for ($counter$ i = 0; i < $n$; i++) {
$body$  }
}
