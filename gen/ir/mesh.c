/* mesh.c: the links of the mesh's dimensions: bandwidth and latency. */
#include "ir/ir.h"

double link_bandwidth(int mesh_dim)
{
  return graph->mesh.bandwidth[mesh_dim] > 0 ? graph->mesh.bandwidth[mesh_dim] : 100e9;
}

double link_latency(int mesh_dim)
{
  return graph->mesh.latency[mesh_dim] > 0 ? graph->mesh.latency[mesh_dim] : 10e-6;
}

struct link link_of(int group)
{
  const struct group *g = &graph->group[group];
  struct link link = {.bandwidth = link_bandwidth(g->dim[0])};
  for (int i = 0; i < g->n; i++) {
    if (link_latency(g->dim[i]) > link.latency) link.latency = link_latency(g->dim[i]);
    if (link_bandwidth(g->dim[i]) < link.bandwidth) link.bandwidth = link_bandwidth(g->dim[i]);
  }
  return link;
}
