/* Modules: those of nn, and the plan's own classes of them. */
#include "random.h"

#include <stdio.h>
#include <string.h>

static int add_module(enum kind kind, int a)
{
  now.module[now.nmodule] = (struct module){kind, now.tensor[a].ndim, 0};
  return now.nmodule++;
}

int linear(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int last = now.tensor[a].ndim - 1, n = any_size(), m = add_module(LINEAR, a);
  SAY(now.init, "  self.m%d = nn.Linear(%d, %d%s)\n", m, now.tensor[a].size[last], n,
      any(3) ? "" : ", {bias = false}");
  begin(resized(now.tensor[a], last, n));
  SAY(now.forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

int norm(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int first = any(3) ? now.tensor[a].ndim - 1 : any(now.tensor[a].ndim), m = add_module(NORM, a);
  SAY(now.init, "  self.m%d = nn.%s({", m, any(2) ? "LayerNorm" : "RMSNorm");
  for (int d = first; d < now.tensor[a].ndim; d++) SAY(now.init, "%d, ", now.tensor[a].size[d]);
  SAY(now.init, "}, {eps = 0.1})\n");
  begin(now.tensor[a]);
  SAY(now.forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

/* A module for the sake of the layouts that styles ask for there. */
int identity(void)
{
  static const char *const known[] = {"Identity()", "Tanh()", "Softmax(-1)", "Dropout(0.2)"};
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int m = add_module(OTHER, a);
  SAY(now.init, "  self.m%d = nn.%s\n", m, ANY_OF(known));
  begin(now.tensor[a]);
  SAY(now.forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

int convolution(void)
{
  int a = pick(4, 4);
  if (a < 0) return 0;
  const int *s = now.tensor[a].size;
  int groups = any(2) ? 1 : any_factor(s[1]), out = groups * (1 + any(3)), m;
  int ky = 1 + any(3), kx = 1 + any(2), stride = 1 + any(2), pad = any(2), dilation = 1 + any(2);
  int y = s[2] + 2 * pad - dilation * (ky - 1) - 1, x = s[3] + 2 * pad - dilation * (kx - 1) - 1;
  if (y < 0 || x < 0) return 0;
  m = add_module(OTHER, a);
  SAY(now.init,
      "  self.m%d = nn.Conv2d(%d, %d, {%d, %d}, {stride = %d, padding = %d, dilation = %d, "
      "groups = %d, bias = %s})\n",
      m, s[1], out, ky, kx, stride, pad, dilation, groups, any(2) ? "true" : "false");
  begin((struct tensor){4, {s[0], out, y / stride + 1, x / stride + 1}, 0});
  SAY(now.forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

int pool(void)
{
  int a = pick(3, 4);
  if (a < 0) return 0;
  int d = now.tensor[a].ndim - 2, ky = 1 + any(3), kx = 1 + any(3), stride = 1 + any(2);
  int pad = ky > 1 && kx > 1 && any(2);
  int y = now.tensor[a].size[d] + 2 * pad - ky, x = now.tensor[a].size[d + 1] + 2 * pad - kx;
  if (y < 0 || x < 0) return 0;
  begin(resized(resized(now.tensor[a], d, y / stride + 1), d + 1, x / stride + 1));
  SAY(now.forward, "%s:max_pool2d({%d, %d}, {stride = %d, padding = %d})", read_of(a), ky, kx,
      stride, pad);
  return done();
}

/* Queries, keys and values, each a part of one tensor [batch, sequence, width]. */
int attention(void)
{
  int a = pick(3, 3);
  if (a < 0) return 0;
  struct tensor t = now.tensor[a];
  int groups = 1 + any(2), heads = groups * (1 + any(3)), size = 1 + any(4), m = now.nmodule;
  add_module(LINEAR, a);
  SAY(now.init, "  self.m%d = nn.Linear(%d, %d)\n", m, t.size[2], (heads + 2 * groups) * size);
  begin(resized(t, 2, heads * size));
  SAY(now.forward, "attend(self.m%d(%s), %d, %d, %d, {causal = %s})", m, read_of(a), heads, groups,
      size, any(2) ? "true" : "false");
  return done();
}

/* ----------------------------------------------------------------------- classes, and lists of
 * them */

/* Says how many of them there are, each made by a text like "Block(3, 4)"; returns how many. */
static int say_list(int m, const char *one)
{
  SAY(now.init, "  self.m%d = nn.ModuleList{", m);
  const int n = any(4) ? 2 + any(3) : 1;
  for (int i = 0; i < n; i++) SAY(now.init, "%s%s", i ? ", " : "", one);
  SAY(now.init, "}\n");
  return n;
}

/* The list of n modules, with something past each of them. A sum of so many terms grows with each
   module, and is made so much less. */
static int say_through(int m, int a, int n)
{
  static const struct {
    const char *past;
    int terms;
  } ways[] = {{"y", 1}, {"y", 1}, {"t + y", 2}, {"x * y:tanh()", 1}, {"x + t + y", 3}};
  const int way = any(COUNT(ways));
  int growth = 1;
  for (int i = 0; i < n; i++) growth *= ways[way].terms;
  begin(now.tensor[a]);
  SAY(now.forward, "through(self.m%d, %s, function(x, t, y) return %s end)", m, read_of(a),
      ways[way].past);
  if (growth > 1) SAY(now.forward, " * %.4g", 1.0 / growth);
  return done();
}

/* A list of equal modules, with or without something past them. */
int blocks(void)
{
  static const char *const name[NKINDS] = {
      [MLP] = "Block", [GATED] = "Gated", [ATTENDING] = "Attending", [IMAGE] = "Image"};
  int a = pick(1, MAX_NDIM);
  char one[64];
  if (a < 0) return 0;
  enum kind kind = any(2) ? MLP : GATED;
  if (now.tensor[a].ndim == 3 && any(2)) kind = ATTENDING;
  if (now.tensor[a].ndim == 4 && any(2)) kind = IMAGE;
  int width = now.tensor[a].size[kind == IMAGE ? 1 : now.tensor[a].ndim - 1], hidden = any_size();
  int m = add_module(kind, a);
  if (kind == ATTENDING) hidden = 1 + any(3);
  snprintf(one, sizeof one, "%s(%d, %d)", name[kind], width, hidden);
  return say_through(m, a, say_list(m, one));
}

struct scope own[MAX_OWN];
int nown;

/* A class whose forward takes and makes a tensor of this shape, of statements made at random; what
   none of them reads goes into what it makes: as a factor, as a loss of logits takes no notice of a
   term that all of them have. */
static void make_own(struct tensor shape)
{
  static struct scope outside;
  outside = now;
  now = (struct scope){.tensor = {shape}, .ntensor = 1};
  now.tensor[0].reads = 0;
  say_statements(1 + any(5), 0);
  int like = 0;
  for (int i = 0; i < now.ntensor; i++)
    if (same_shape(&now.tensor[i], &now.tensor[0])) like = i;
  const char *made = read_of(like);
  if (any(2))
    SAY(now.forward, "    return 0.5 * (%s + t0)", made);
  else
    SAY(now.forward, "    return %s", made);
  for (int i = 1; i < now.ntensor; i++)
    if (!now.tensor[i].reads) SAY(now.forward, " * (1 + t%d:mean():tanh() * 0.3)", i);
  SAY(now.forward, "\n");
  own[nown++] = now;
  now = outside;
}

/* A list of modules of a class of its own. */
int own_blocks(void)
{
  int a = pick(1, MAX_NDIM);
  char one[16];
  if (a < 0 || nown == MAX_OWN) return 0;
  snprintf(one, sizeof one, "Own%d()", nown);
  make_own(now.tensor[a]);
  int m = add_module(OWN, a);
  now.module[m].own = nown - 1;
  return say_through(m, a, say_list(m, one));
}

/* The plan's own classes. */
static const char *const classes[NKINDS] = {
    [MLP] = "local Block = nn.module(\"Block\", function(self, width, hidden)\n"
            "  self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)\n"
            "  function self:forward(x) return self.down(self.up(x):tanh()) end\n"
            "end)\n\n",
    [GATED] = "local Gated = nn.module(\"Gated\", function(self, width, hidden)\n"
              "  local plain = {bias = false}\n"
              "  self.norm, self.drop = nn.RMSNorm(width, {eps = 0.1}), nn.Dropout(0.1)\n"
              "  self.w1, self.w3 = nn.Linear(width, hidden, plain), nn.Linear(width, hidden)\n"
              "  self.w2 = nn.Linear(hidden, width, plain)\n"
              "  function self:forward(x)\n"
              "    local h = self.norm(x)\n"
              "    return x + self.drop(self.w2(self.w1(h):silu() * self.w3(h)))\n"
              "  end\n"
              "end)\n\n",
    [ATTENDING] =
        "local Attending = nn.module(\"Attending\", function(self, width, groups)\n"
        "  self.norm = nn.LayerNorm(width, {eps = 0.1})\n"
        "  self.wq, self.wk = nn.Linear(width, 8 * groups), nn.Linear(width, 4 * groups)\n"
        "  self.wv, self.wo = nn.Linear(width, 4 * groups), nn.Linear(8 * groups, width)\n"
        "  local function heads(x) return x:unflatten(-1, -1, 4):transpose(1, 2) end\n"
        "  function self:forward(x)\n"
        "    local h = self.norm(x)\n"
        "    local cos, sin = F.rotary_tables(x:size(1), 4, 100)\n"
        "    local q, k = heads(self.wq(h)):rotary(cos, sin), heads(self.wk(h)):rotary(cos, sin)\n"
        "    local y = F.scaled_dot_product_attention(q, k, heads(self.wv(h)), {causal = true})\n"
        "    return self.wo(y:transpose(1, 2):flatten(2))\n"
        "  end\n"
        "end)\n\n",
    [IMAGE] = "local Image = nn.module(\"Image\", function(self, channels, hidden)\n"
              "  self.norm = nn.Conv2d(channels, hidden, 3, {padding = 1})\n"
              "  self.pool = nn.MaxPool2d(3, {stride = 1, padding = 1})\n"
              "  self.back = nn.Conv2d(hidden, channels, 1)\n"
              "  function self:forward(x) return self.back(self.pool(self.norm(x):gelu())) end\n"
              "end)\n\n"};

static const char through[] = "local function through(blocks, x, past)\n"
                              "  local t = x\n"
                              "  for _, block in ipairs(blocks) do t = past(x, t, block(t)) end\n"
                              "  return t\n"
                              "end\n\n";

static const char turned[] = "local function turned(x, dim, ...)\n"
                             "  local parts = {...}\n"
                             "  table.insert(parts, 1, table.remove(parts))\n"
                             "  return x + F.cat(parts, dim)\n"
                             "end\n\n";

static const char attend[] =
    "local function attend(x, heads, groups, size, options)\n"
    "  local q, k, v = x:split({heads * size, groups * size, groups * size}, -1)\n"
    "  local function apart(t) return t:unflatten(-1, -1, size):transpose(1, 2) end\n"
    "  local y = F.scaled_dot_product_attention(apart(q), apart(k), apart(v), options)\n"
    "  return y:transpose(1, 2):flatten(2)\n"
    "end\n\n";

/* Whether the model's forward, or that of a class of its own, calls the function. */
static int is_called(const char *name)
{
  int found = strstr(now.forward, name) != NULL;
  for (int i = 0; i < nown; i++) found |= strstr(own[i].forward, name) != NULL;
  return found;
}

static void put_classes_of(const struct scope *s, int *used)
{
  for (int i = 0; i < s->nmodule; i++)
    if (!used[s->module[i].kind]++ && classes[s->module[i].kind])
      printf("%s", classes[s->module[i].kind]);
}

/* The functions and classes that the model is made of; `b` are the inputs of a step. */
void put_classes(void)
{
  int used[NKINDS] = {0};
  if (is_called("through(")) printf("%s", through);
  if (is_called("turned(")) printf("%s", turned);
  if (is_called("attend(")) printf("%s", attend);
  put_classes_of(&now, used);
  for (int i = 0; i < nown; i++) put_classes_of(&own[i], used);
  printf("local b\n\n");
  for (int i = 0; i < nown; i++)
    printf("local Own%d = nn.module(\"Own%d\", function(self)\n%s"
           "  function self:forward(t0)\n%s  end\nend)\n\n",
           i, i, own[i].init, own[i].forward);
}
