/* Where tensors lie, and in which type: redistributions, styles, units, policies. */
#include "random.h"

#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------------- redistributions */

const char *placement(int ndim)
{
  static char text[16];
  if (!any(4)) return "Replicate()";
  snprintf(text, sizeof text, "Shard(%d)", any(2) ? any(ndim) : -1 - any(ndim));
  return text;
}

/* Along all dimensions of the mesh. Where several cut the same dimension of the tensor, in either
   order; what is pending is of one reduction. */
static void say_placements(int ndim)
{
  static const char *const pending[] = {"Partial()", "Partial()", "Partial(\"max\")",
                                        "Partial(\"min\")"};
  const char *const partial = ANY_OF(pending);
  int often = any(ndim), cuts = 0, turned = any(2), is_cut[MAX_MESH];
  for (int i = 0; i < nmesh; i++) cuts += is_cut[i] = any(2);
  for (int i = 0, done = 0; i < nmesh; i++) {
    SAY(now.forward, "%s", i ? ", " : "");
    if (is_cut[i] && turned)
      SAY(now.forward, "Shard(%d, %d)", often, cuts - ++done);
    else if (is_cut[i])
      SAY(now.forward, "Shard(%d)", often);
    else if (!any(4))
      SAY(now.forward, "%s", any(2) ? "false" : partial);
    else if (ndim > 1 && any(2))
      SAY(now.forward, "Shard(%d)", (often + 1 + any(ndim - 1)) % ndim);
    else
      SAY(now.forward, "Replicate()");
  }
}

/* In which types it is moved; what it is in then. */
static const char *say_types(void)
{
  static const char *const types[] = {"float32", "bfloat16"};
  const char *forward = any(3) ? types[!is_exact && any(2)] : NULL;
  const char *backward = any(2) ? types[!is_exact && any(2)] : NULL;
  SAY(now.forward, ", {");
  if (forward) SAY(now.forward, "forward_dtype = \"%s\"%s", forward, backward ? ", " : "");
  if (backward) SAY(now.forward, "backward_dtype = \"%s\"", backward);
  SAY(now.forward, "}");
  if ((forward && !strcmp(forward, "bfloat16")) || (backward && !strcmp(backward, "bfloat16")))
    rounds = 1;
  return forward ? forward : type;
}

int redistributed(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  struct tensor new = now.tensor[a];
  const char *moved = type;
  begin(new);
  SAY(now.forward, "%s:redistribute(", read_of(a));
  if (any(4)) {
    SAY(now.forward, "mesh, {");
    say_placements(new.ndim);
    SAY(now.forward, "}");
  } else {
    SAY(now.forward, "mesh.%c, %s", 'a' + any(nmesh), placement(new.ndim));
  }
  if (!any(4)) moved = say_types();
  SAY(now.forward, ")");
  if (new.ndim > 1 && !any(6)) {
    int d = any(new.ndim), e = any(new.ndim);
    now.tensor[now.ntensor].size[d] = new.size[e];
    now.tensor[now.ntensor].size[e] = new.size[d];
    SAY(now.forward, ":transpose(%d, %d)", d, e);
  }
  if (!any(3)) SAY(now.forward, ":tanh()");
  if (moved != type) SAY(now.forward, ":to(\"%s\")", type);
  return done();
}

/* ----------------------------------------------------------------------------------- the styles */

/* Their modules, for which there are styles. */
static const struct {
  const char *name;
  enum kind kind;
} members[NKINDS][6] = {
    [MLP] = {{"up", LINEAR}, {"down", LINEAR}},
    [GATED] = {{"norm", NORM}, {"w1", LINEAR}, {"w3", LINEAR}, {"w2", LINEAR}, {"drop", OTHER}},
    [ATTENDING] = {{"norm", NORM}, {"wq", LINEAR}, {"wk", LINEAR}, {"wv", LINEAR}, {"wo", LINEAR}},
    [IMAGE] = {{"norm", OTHER}, {"pool", OTHER}, {"back", OTHER}},
};

/* The dimensions of the mesh that cut the parameters of units, and that have copies; -1: none. */
static int unit_cut = -1, unit_copies = -1;

static void put_prepare_style(const char *path, int ndim)
{
  static const char *const forms[] = {
      "  [\"%s\"] = PrepareModuleInput{desired_input_layouts = %s},\n",
      "  [\"%s\"] = PrepareModuleOutput{desired_output_layouts = %s},\n",
      "  [\"%s\"] = PrepareModuleInputOutput{desired_input_layouts = %s, ",
  };
  int form = any(5) / 2;
  printf(forms[form], path, placement(ndim));
  if (form == 2) printf("desired_output_layouts = %s},\n", placement(ndim));
}

static void put_divided_style(const char *path, int ndim, int rowwise)
{
  printf("  [\"%s\"] = %s{", path, rowwise ? "Rowwise" : "Colwise");
  if (!any(8) && rowwise)
    printf("output_layouts = Partial()");
  else if (any(2))
    printf("output_layouts = %s", placement(ndim));
  printf("},\n");
}

/* divides: whether styles may cut parameters. */
static void put_style(const char *path, enum kind kind, int ndim, int rowwise, int divides)
{
  if (divides && (kind == LINEAR || kind == EMBEDDING) && any(8))
    put_divided_style(path, ndim, rowwise);
  else if (kind == NORM && any(3))
    printf("  [\"%s\"] = SequenceParallel{sequence_dim = %d},\n", path, any(ndim));
  else if (kind != EMBEDDING)
    put_prepare_style(path, ndim);
}

static void put_styles_of(const char *path, const struct module *m, int divides)
{
  int rowwise = any(2), other = any(4) ? !rowwise : rowwise;
  char in[64];
  if (!any(4)) return;
  if (m->kind < MLP) {
    put_style(path, m->kind, m->ndim, rowwise, divides);
    return;
  }
  snprintf(in, sizeof in, "%.40s.*", path);
  if (!any(5)) put_prepare_style(in, m->ndim);
  for (int k = 0; m->kind == OWN && k < own[m->own].nmodule; k++) {
    snprintf(in, sizeof in, "%.40s.*.m%d", path, k);
    put_styles_of(in, &own[m->own].module[k], divides);
  }
  for (int k = 0; m->kind != OWN && members[m->kind][k].name; k++) {
    int is_last = !members[m->kind][k + 1].name || members[m->kind][k + 1].kind != LINEAR;
    snprintf(in, sizeof in, "%.40s.*.%s", path, members[m->kind][k].name);
    if (members[m->kind][k].kind == LINEAR || !any(2))
      put_style(in, members[m->kind][k].kind, m->ndim, is_last ? other : rowwise, divides);
  }
}

/* What the modules, or the modules in them, are to be over one dimension of the mesh. */
static void put_styles_over(int dimension, int divides)
{
  static const char *const pieces[] = {"true", "2", "2", "2", "4"};
  char path[16];
  printf("parallelize(model, mesh.%c, {\n", 'a' + dimension);
  for (int i = 0; i < now.nmodule; i++) {
    snprintf(path, sizeof path, "m%d", i);
    put_styles_of(path, &now.module[i], divides);
  }
  printf("}");
  if (mesh[dimension] > 1 && !any(is_even ? 4 : 24))
    printf(", {async_tp = args.%c and %s}", 'a' + dimension, ANY_OF(pieces));
  printf(")\n");
}

/* --------------------------------------------------------------------------------------- units */

/* Whether modules have types of their own. */
static int has_policies;

/* Of half of all plans. */
static void choose_units(void)
{
  if (any(2)) return;
  unit_cut = any(nmesh);
  if (nmesh > 1 && !any(3)) unit_copies = (unit_cut + 1 + any(nmesh - 1)) % nmesh;
}

static void put_unit_mesh(void)
{
  printf("mesh{");
  if (unit_copies >= 0) printf("\"%c\", ", 'a' + unit_copies);
  printf("\"%c\"}", 'a' + unit_cut);
}

static void put_unit(const char *modules)
{
  static int groups = -1;
  if (groups < 0)
    groups = !any(4) && nmesh < MAX_MESH && mesh[unit_cut] > 2 && mesh[unit_cut] % 2 == 0;
  printf("fully_shard(%s, ", modules);
  put_unit_mesh();
  if (groups && any(2))
    printf(", {reshard_after_forward = args.%c and 2 or true", 'a' + unit_cut);
  else
    printf(", {reshard_after_forward = %s", any(3) ? "true" : "false");
  if (!any(4)) printf(", shard_dim = -1");
  if (!is_exact && !has_policies && !any(12)) {
    printf(", reduce_dtype = \"bfloat16\"");
    rounds = 1;
  }
  printf("})\n");
}

/* Some modules, the members of some lists, and perhaps the rest. */
static void put_units(void)
{
  char list[1 << 10] = "";
  for (int i = 0; i < now.nmodule; i++) {
    char one[64];
    snprintf(one, sizeof one, "%s.m%d", "model", i);
    if (now.module[i].kind >= MLP) {
      printf("for _, part in ipairs(%s) do ", one);
      put_unit("part");
      printf("end\n");
    } else if (!any(3)) {
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", one);
    } else if (any(2)) {
      put_unit(one);
    }
  }
  if (*list) {
    char modules[sizeof list + 2];
    snprintf(modules, sizeof modules, "{%s}", list);
    put_unit(modules);
  }
  if (any(4)) put_unit("model");
}

/* Copies, whose update may be cut: ZeRO's stages. */
static void put_copies(void)
{
  int zero = any(3);
  if (zero && !any(4)) {
    int m = any(now.nmodule);
    printf("replicate(model.m%d, ", m);
    put_unit_mesh();
    printf(", {zero = %d})\n", zero);
  }
  printf("replicate(model, ");
  put_unit_mesh();
  printf(", {zero = %d})\n", zero);
}

/* Some modules that compute in another type than the model, and give its own. */
static void put_policies(void)
{
  has_policies = 1;
  for (int i = 0; i < now.nmodule; i++) {
    if (any(2)) continue;
    static const char of[] = "{param_dtype = \"bfloat16\", reduce_dtype = \"%s\", "
                             "output_dtype = \"float32\"})";
    int is_list = now.module[i].kind >= MLP;
    if (now.module[i].kind == OWN) continue;
    if (is_list) printf("for _, part in ipairs(model.m%d) do mixed_precision(part, ", i);
    if (!is_list) printf("mixed_precision(model.m%d, ", i);
    printf(of, any(2) ? "float32" : "bfloat16");
    printf("%s\n", is_list ? " end" : "");
    rounds = 1;
  }
}

/* The placements over all dimensions of the mesh, or over one, are tpgen's to choose; now and then
   beside units. */
void put_automatic(void)
{
  choose_units();
  if (unit_cut >= 0) put_units();
  if (any(4))
    printf("parallelize(model, mesh, auto())\n");
  else
    printf("parallelize(model, mesh.%c, auto())\n", 'a' + any(nmesh));
}

/* What the plan says of the model's modules. A style along a dimension that units are cut over may
   say where values lie, but cuts no parameter. */
void put_styles(void)
{
  if (strcmp(type, "float32")) {
    has_policies = 1;
    printf("mixed_precision(model, {param_dtype = \"bfloat16\", reduce_dtype = \"%s\"})\n",
           any(2) ? "float32" : "bfloat16");
  } else if (!is_exact && !any(8)) {
    put_policies();
  }
  choose_units();
  for (int d = 0; d < nmesh; d++) {
    int has_unit = d == unit_cut || d == unit_copies;
    if (!has_unit || !any(3)) put_styles_over(d, !has_unit);
  }
  if (unit_cut < 0) return;
  if (any(3))
    put_units();
  else
    put_copies();
}
