/* Graphs: what was captured, with the number of kernels in it. */
#include <stdlib.h>

#include "runtime.h"

void pretended_let_go(struct CUgraph_st *graph)
{
    if (--graph->num_owners > 0)
        return;
    if (graph->graph && pretended_pst.graph_destroy(graph->graph) != PST_OK)
        pretended_leave("a graph", "cannot be destroyed");
    for (int i = 0; i < graph->num_objects; i++)
        cudaUserObjectRelease(graph->objects[i], 1);
    free(graph);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    (void)flags;
    *exec = pretended_zeroed(sizeof(**exec));
    (*exec)->of = graph;
    graph->num_owners++;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    pretended_count_kernels(exec->of->num_kernels);
    return pretended_enqueued(stream, pretended_pst.graph_launch(exec->of->graph, stream));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *num_nodes)
{
    pst_graph_info info;
    if (nodes)
        return pretended_answer(cudaErrorNotSupported);
    const pst_status status = pretended_pst.graph_get_info(graph->graph, &info);
    *num_nodes = status == PST_OK ? info.num_nodes + graph->num_kernels : 0;
    return pretended_of_status(status);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    pretended_let_go(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    pretended_let_go(exec->of);
    free(exec);
    return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object_out, void *what, cudaHostFn_t destroy,
                                 unsigned count, unsigned flags)
{
    (void)flags;
    *object_out = pretended_zeroed(sizeof(**object_out));
    **object_out = (struct CUuserObject_st){what, destroy, count};
    return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t self, unsigned count)
{
    self->count -= count;
    if (self->count == 0) {
        self->destroy(self->what);
        free(self);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t what, unsigned count,
                                      unsigned flags)
{
    if (graph->num_objects == 16 || count != 1)
        return pretended_answer(cudaErrorNotSupported);
    what->count += flags == cudaGraphUserObjectMove ? 0 : 1;
    graph->objects[graph->num_objects++] = what;
    return cudaSuccess;
}
