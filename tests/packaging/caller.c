/* Hands every struct that can grow to the library, each by itself, and says what the library answers.
 * What is read lies at the end of a page, so that a byte read behind it is a crash.
 * CUT: how many bytes of each struct the library is not to know, where it is not the one in question.
 * structs.py builds and runs this with headers that are older, as old as, and newer than the library. */
#include "caller.h"

int num_bad;

/* A copy of `bytes` bytes before a page that cannot be read. */
void *put_at_end(const void *from, size_t bytes)
{
    enum { HALF = 65536 };
    unsigned char *memory =
        mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + HALF, HALF, PROT_NONE) != 0)
        return NULL;
    return memcpy(memory + HALF - bytes, from, bytes);
}

void say(const char *name, pst_status status)
{
    printf("%s %s%s\n", name,
           status == PST_OK ? "OK" : "INVALID: ", status == PST_OK ? "" : pst_last_message());
}

/* What is in the way of a check, and not what it is about. */
void need(const char *what, pst_status status)
{
    if (status == PST_OK)
        return;
    printf("%s: %s\n", what, pst_last_message());
    num_bad++;
}

/* One more function that is given the struct in question. */
void also(const char *what, pst_status status)
{
    if (CUT == 0 ? status == PST_OK : strstr(pst_last_message(), "which is older") != NULL)
        return;
    printf("%s: %d %s\n", what, (int)status, pst_last_message());
    num_bad++;
}

static pst_status make_group(size_t config_bytes, uint32_t space_bytes, uint32_t tensor_bytes,
                             uint32_t num, pst_group **group)
{
    const pst_row_space spaces[2] = {{.count_type = PST_COUNT_INT64, .capacity = 4},
                                     {.count_type = PST_COUNT_INT64, .capacity = 2}};
    const pst_tensor tensors[2] = {{.row_bytes = 16}, {.row_bytes = 32, .space = num - 1}};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.struct_size = config_bytes;
    config.spaces = put_at_end(spaces, num * sizeof(spaces[0]));
    config.tensors = put_at_end(tensors, num * sizeof(tensors[0]));
    config.num_spaces = config.num_tensors = num;
    config.space_bytes = space_bytes;
    config.tensor_bytes = tensor_bytes;
    return pst_group_create(END(config), group);
}

/* Of two elements each, where the library must go by the caller's sizes. */
static void check_groups(void)
{
    const uint32_t space = sizeof(pst_row_space), tensor = sizeof(pst_tensor);
    const size_t config = sizeof(pst_group_config);
    pst_group *group = NULL;
    say("pst_group_config", make_group(config, space - CUT, tensor - CUT, 1, &group));
    pst_group_destroy(group);
    group = NULL;
    say("pst_row_space", make_group(config - CUT, space, tensor - CUT, 1, &group));
    pst_group_destroy(group);
    group = NULL;
    say("pst_tensor", make_group(config - CUT, space - CUT, tensor, 1, &group));
    pst_group_destroy(group);
    group = NULL;
    if (CUT == 0) {
        pst_group_usage usage = {0, 0, 0};
        need("group of two", make_group(config, space, tensor, 2, &group));
        need("measure", pst_group_measure(group, NULL, 0, &usage));
        num_bad += usage.payload_bytes != 4 * 16 + 2 * 32;
        pst_group_destroy(group);
    }
}

static void check_glus(pst_device *device)
{
    const pst_row_space space = {.count_type = PST_COUNT_HOST, .capacity = 4};
    const pst_tensor tensor = {.row_bytes = 8, .written_by = PST_WRITTEN_BY_GLU};
    static uint16_t input[16], output[8];
    static int64_t count = 4;
    void *base = input;
    const void *counts = &count;
    const pst_ticket none = {0};
    pst_group *group = NULL;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    pst_buffers buffers = PST_BUFFERS_INIT;
    pst_glu glu = PST_GLU_INIT;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    config.struct_size -= CUT;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    config.space_bytes -= CUT;
    config.tensor_bytes -= CUT;
    need("group of a GLU", pst_group_create(&config, &group));
    buffers.struct_size -= CUT;
    buffers.bases = &base;
    buffers.counts = &counts;
    operands.output.base = output;
    operands.struct_size -= CUT;
    say("pst_glu", pst_glu_forward(device, END(glu), none, group, &buffers, &operands, NULL, NULL));
    operands.struct_size += CUT;
    glu.struct_size -= CUT;
    say("pst_glu_operands",
        pst_glu_forward(device, &glu, none, group, &buffers, END(operands), NULL, NULL));
    need("group's end", pst_group_destroy(group));
}

static void check_scratches(pst_device *device)
{
    pst_scratch_config config = PST_SCRATCH_CONFIG_INIT;
    pst_scratch *scratch = NULL;
    say("pst_scratch_config", pst_scratch_create(device, END(config), &scratch));
    need("scratch of the whole", pst_scratch_destroy(scratch));
    config.struct_size -= CUT;
    need("scratch", pst_scratch_create(device, &config, &scratch));
    GET(pst_scratch_info, pst_scratch_get_info(scratch, out));
    need("scratch's end", pst_scratch_destroy(scratch));
}

static void check_comms(pst_device *device)
{
    float from = 1, to = 0;
    pst_comm_config config = PST_COMM_CONFIG_INIT;
    pst_exchange exchange = PST_EXCHANGE_INIT;
    pst_comm *comm = NULL;
    need("id", pst_comm_make_id(device, &config.id));
    config.num_ranks = 1;
    say("pst_comm_config", pst_comm_create(device, END(config), &comm));
    need("communicator's end", pst_comm_destroy(comm));
    config.struct_size -= CUT;
    need("id", pst_comm_make_id(device, &config.id));
    need("communicator", pst_comm_create(device, &config, &comm));
    exchange.kind = PST_EXCHANGE_SHIFT;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.count = 1;
    exchange.from = &from;
    exchange.to = &to;
    say("pst_exchange", pst_comm_run(comm, END(exchange), NULL));
    GET(pst_comm_info, pst_comm_get_info(comm, out));
    const pst_product nothing = PST_PRODUCT_INIT;
    say("pst_product", pst_product_run(device, END(nothing), NULL));
    need("communicator's end", pst_comm_destroy(comm));
}

/* A block of one token, whose layers and operands come from callers of any age. */
static void check_layers(pst_device *device)
{
    static float memory[12][4] __attribute__((aligned(16)));
    pst_scratch *scratch = NULL;
    pst_linear *linear = NULL;
    pst_mlp *mlp = NULL;
    pst_scratch_config whole = PST_SCRATCH_CONFIG_INIT;
    pst_linear_config up = PST_LINEAR_CONFIG_INIT, down = PST_LINEAR_CONFIG_INIT;
    pst_linear_operands operands = PST_LINEAR_OPERANDS_INIT;
    pst_mlp_config config = PST_MLP_CONFIG_INIT;
    pst_mlp_operands of_block = PST_MLP_OPERANDS_INIT;
    pst_glu glu = PST_GLU_INIT;
    whole.struct_size -= CUT;
    need("scratch", pst_scratch_create(device, &whole, &scratch));
    down.kind = PST_LINEAR_ROW;
    up.scratch = down.scratch = scratch;
    up.dtype = up.weight_gradient_dtype = down.dtype = down.weight_gradient_dtype = PST_DTYPE_FP32;
    up.tokens = up.in_features = down.tokens = down.in_features = down.out_features = 1;
    up.out_features = 2;
    say("pst_linear_config", pst_linear_create(END(up), &linear));
    need("layer's end", pst_linear_destroy(linear));
    up.struct_size -= CUT;
    down.struct_size -= CUT;
    need("layer", pst_linear_create(&up, &linear));
    operands.input = memory[0];
    operands.weight = memory[1];
    operands.output = memory[2];
    say("pst_linear_operands", pst_linear_forward(linear, END(operands), NULL));
    need("layer's end", pst_linear_destroy(linear));
    glu.dtype = PST_GLU_FP32;
    glu.struct_size -= CUT;
    config.up = &up;
    config.down = &down;
    config.glu = &glu;
    say("pst_mlp_config", pst_mlp_create(END(config), &mlp));
    need("block's end", pst_mlp_destroy(mlp));
    config.struct_size -= CUT;
    need("block", pst_mlp_create(&config, &mlp));
    of_block.input = memory[3];
    of_block.up_weight = memory[4];
    of_block.down_weight = memory[5];
    of_block.output = memory[6];
    of_block.hidden = memory[7];
    say("pst_mlp_operands", pst_mlp_forward(mlp, END(of_block), NULL));
    need("block's end", pst_mlp_destroy(mlp));
    need("scratch's end", pst_scratch_destroy(scratch));
}

static void check_tickets(pst_device *device)
{
    pst_pool_config whole = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    pst_group *group = NULL;
    pst_ticket ticket = {0};
    static int64_t count = 1;
    static unsigned char rows[64];
    void *base = rows;
    const void *counts = &count;
    pst_buffers buffers = PST_BUFFERS_INIT;
    uint64_t bytes = 0;
    buffers.bases = &base;
    buffers.counts = &counts;
    whole.num_pages = whole.num_host_pages = 2;
    say("pst_pool_config", pst_pool_bytes(END(whole), &bytes));
    whole.struct_size -= CUT;
    need("pool", pst_pool_create(device, END(whole), &pool));
    need("group", make_group(sizeof(pst_group_config) - CUT, sizeof(pst_row_space) - CUT,
                             sizeof(pst_tensor) - CUT, 1, &group));
    need("ticket", pst_ticket_create(pool, group, &ticket));
    const pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    const pst_migrate_options migrate = PST_MIGRATE_OPTIONS_INIT;
    const pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    say("pst_buffers", pst_ticket_stash(ticket, group, END(buffers), NULL, NULL));
    need("release", pst_ticket_release(ticket, NULL));
    buffers.struct_size -= CUT;
    say("pst_stash_options", pst_ticket_stash(ticket, group, &buffers, END(stash), NULL));
    say("pst_migrate_options", pst_ticket_demote(ticket, END(migrate), NULL));
    also("promote", pst_ticket_promote(ticket, END(migrate), NULL));
    say("pst_restore_options", pst_ticket_restore(ticket, group, &buffers, END(restore), NULL));
    GET(pst_pool_info, pst_pool_get_info(pool, out));
    check_schedulers(device, pool, group, &buffers);
    need("ticket's end", pst_ticket_destroy(ticket));
    need("group's end", pst_group_destroy(group));
    need("pool's end", pst_pool_destroy(pool));
}

static void check_device(void)
{
    pst_device *device = NULL;
    pst_arena *arena = NULL;
    pst_copy_rates rates;
    need("device", pst_device_open("host", 0, &device));
    GET(pst_device_info, pst_device_get_info(device, out));
    pst_calibrate_config calibrate = PST_CALIBRATE_CONFIG_INIT;
    calibrate.bytes = 1u << 20;
    calibrate.repetitions = 1;
    say("pst_calibrate_config", pst_device_calibrate(device, END(calibrate), &rates));
    check_groups();
    check_glus(device);
    check_comms(device);
    check_scratches(device);
    check_layers(device);
    check_tickets(device);
    const pst_arena_config config = PST_ARENA_CONFIG_INIT;
    say("pst_arena_config", pst_arena_create(device, NULL, END(config), &arena));
    pst_arena_destroy(arena);
    need("arena", pst_arena_create(device, NULL, NULL, &arena));
    GET(pst_arena_stats, pst_arena_get_stats(arena, out));
    need("arena's end", pst_arena_destroy(arena));
    need("device's end", pst_device_close(device));
}

static ptrdiff_t read_text(void *source, void *buffer, size_t bytes)
{
    const char **left = source;
    const size_t num = strlen(*left) < bytes ? strlen(*left) : bytes;
    memcpy(buffer, *left, num);
    *left += num;
    return (ptrdiff_t)num;
}

static void check_traces(void)
{
    static const pst_trace_request rows[2] = {{.line = 1, .bytes = 8},
                                              {.line = 2, .op = PST_TRACE_FREE}};
    pst_trace *trace = NULL, *other = NULL;
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    pst_trace_reader *reader = NULL;
    const char *left = "op,id,size,stream,phase,layer,micro_batch,rank,tag\n"
                       "malloc,1,8,0,,,,0,static\nfree,1,8,0,,,,0,static\n";
    also("read", pst_trace_read(END(config), read_text, &left, &trace));
    pst_trace_destroy(trace);
    trace = NULL;
    also("reader", pst_trace_reader_open(END(config), read_text, &left, &reader));
    pst_trace_reader_close(reader);
    say("pst_trace_config", pst_trace_make(END(config), rows, 2, &trace));
    pst_trace_destroy(trace);
    pst_trace_derivation derivation = PST_TRACE_DERIVATION_INIT;
    derivation.num_layers = 2;
    say("pst_trace_derivation", pst_trace_derive(END(derivation), &other));
    pst_trace_destroy(other);
    derivation.struct_size -= CUT;
    need("trace", pst_trace_derive(END(derivation), &trace));
    GET(pst_trace_summary, pst_trace_get_summary(trace, 0, out));
    const pst_trace_expansion expansion = PST_TRACE_EXPANSION_INIT;
    other = NULL;
    say("pst_trace_expansion", pst_trace_expand(trace, END(expansion), &other));
    pst_trace_destroy(other);
    pst_trace_destroy(trace);
}

/* The larger tensors are of one block each, which may share addresses. */
static pst_status run_plan(const pst_plan_problem *problem, size_t config_bytes)
{
    uint64_t offsets[3] = {0, 0, 0};
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    pst_plan plan;
    config.struct_size = config_bytes;
    config.mode = PST_PLAN_BILEVEL;
    const pst_status status =
        pst_plan_run_sized(problem, END(config), offsets, &plan, sizeof(plan) - CUT);
    num_bad += status == PST_OK && plan.peak != 1536;
    return status;
}

/* The other functions that take a problem. */
static void also_plan(const pst_plan_problem *problem)
{
    const uint64_t offsets[3] = {0, 512, 512};
    const pst_plan_range span = {0, 2};
    pst_plan_fault fault = {PST_PLAN_OVERLAP, 0, 0};
    uint64_t peak = 0, firsts[2] = {0, 0};
    also("check", pst_plan_check(problem, offsets, &fault, &peak));
    also("idle", pst_plan_idle(problem, offsets, 2048, &span, 1, firsts, NULL, 0));
    num_bad += CUT == 0 && (fault.kind != PST_PLAN_RIGHT || peak != 1536 || firsts[1] != 1);
}

static void check_plans(void)
{
    const pst_plan_tensor tensors[3] = {
        {.bytes = 512, .end = 4, .pin = PST_PLAN_FREE, .block = PST_PLAN_NO_BLOCK},
        {.bytes = 1024, .end = 2, .pin = PST_PLAN_FREE, .block = 0},
        {.bytes = 1024, .begin = 2, .end = 4, .pin = PST_PLAN_FREE, .block = 1}};
    const pst_plan_block blocks[2] = {{.end = 2}, {.begin = 2, .end = 4}};
    const size_t config_bytes = sizeof(pst_plan_config) - CUT;
    pst_plan_problem init = PST_PLAN_PROBLEM_INIT;
    init.tensors = AT_END(tensors);
    init.num_tensors = 3;
    init.blocks = AT_END(blocks);
    init.num_blocks = 2;
    pst_plan_problem small = init;
    small.struct_size -= CUT;
    small.tensor_bytes -= CUT;
    small.block_bytes -= CUT;
    pst_plan_problem *problem = END(small);
    problem->struct_size = init.struct_size;
    say("pst_plan_problem", run_plan(problem, config_bytes));
    also_plan(problem);
    *problem = small;
    problem->block_bytes = init.block_bytes;
    say("pst_plan_block", run_plan(problem, config_bytes));
    also_plan(problem);
    *problem = small;
    problem->tensor_bytes = init.tensor_bytes;
    say("pst_plan_tensor", run_plan(problem, config_bytes));
    also_plan(problem);
    *problem = small;
    problem->num_tensors = UINT64_MAX; /* is refused before anything is copied */
    num_bad += pst_plan_check(problem, NULL, NULL, NULL) != PST_E_INVALID;
    *problem = small;
    say("pst_plan_config", run_plan(problem, sizeof(pst_plan_config)));
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    uint64_t offsets[3];
    config.struct_size -= CUT;
    GET(pst_plan, pst_plan_run(problem, END(config), offsets, out));
}

static void check_memory(void)
{
    const pst_swap_shape shape = {.micro_batch = 1, .sequence_size = 8, .hidden_size = 8};
    pst_swap_config swap = PST_SWAP_CONFIG_INIT;
    pst_swap_choice choice;
    swap.num_tokens = swap.link_bytes_per_second = 1;
    also("swap_model", pst_swap_model(&shape, END(swap)));
    say("pst_swap_config", pst_swap_choose_sized(END(swap), &choice, sizeof(choice) - CUT));
    swap.struct_size -= CUT;
    GET(pst_swap_choice, pst_swap_choose(END(swap), out));
    const uint64_t demand = 2;
    pst_pool_config pool = PST_POOL_CONFIG_INIT;
    pst_memory_map_config config = PST_MEMORY_MAP_CONFIG_INIT;
    pst_memory_map map;
    config.gpu_bytes = 1u << 20;
    config.demand_pages = &demand;
    config.num_demands = 1;
    config.pool = END(pool);
    config.struct_size -= CUT;
    also("pool of a map", pst_memory_map_make_sized(END(config), &map, sizeof(map) - CUT));
    pool.struct_size -= CUT;
    config.pool = END(pool);
    config.struct_size += CUT;
    say("pst_memory_map_config", pst_memory_map_make_sized(END(config), &map, sizeof(map) - CUT));
    config.struct_size -= CUT;
    GET(pst_memory_map, pst_memory_map_make(END(config), out));
}

static bool go_on(void *user, const pst_estimate_event *event)
{
    (void)user;
    return event->number < 2;
}

static void check_estimates(void)
{
    pst_estimate_config init = PST_ESTIMATE_CONFIG_INIT;
    pst_estimate_states states;
    pst_estimate_process_group group;
    uint64_t bytes;
    init.num_layers = 2;
    init.hidden_size = init.vocab_size = init.sequence_size = 64;
    init.num_heads = init.num_experts = init.experts_per_token = 2;
    init.ffn_size = init.expert_ffn_size = 128;
    pst_estimate_config *config = END(init);
    say("pst_estimate_config", pst_estimate_check(config));
    also("states", pst_estimate_get_states(config, 0, &states));
    also("timeline", pst_estimate_get_timeline(config, 0, go_on, NULL));
    also("process group", pst_estimate_get_process_group(config, PST_PARALLEL_DATA, 0, &group));
    also("reserve", pst_estimate_get_reserve(config, &bytes));
    config->struct_size -= CUT;
    GET(pst_estimate_gaps, pst_estimate_get_gaps(config, 0, out));
    GET(pst_estimate_params, pst_estimate_get_params(config, out));
    GET(pst_estimate_ledger, pst_estimate_get_ledger(config, true, out));
    GET(pst_estimate_linears, pst_estimate_get_linears(config, 0, true, 2, out));
    GET(pst_estimate_memory, pst_estimate_get_memory(config, 0, NULL, out));
    GET(pst_estimate_modules, pst_estimate_get_modules(config, PST_ESTIMATE_MOE, out));
    GET(pst_estimate_moe, pst_estimate_get_moe(config, 2, out));
    GET(pst_estimate_traffic, pst_estimate_get_traffic(config, 0, out));
}

static void check_steps(void)
{
    pst_estimate_config run = PST_ESTIMATE_CONFIG_INIT;
    pst_step_config init = PST_STEP_CONFIG_INIT;
    pst_gpu a100 = PST_GPU_INIT;
    uint64_t p2p_ns;
    run.num_layers = 2;
    run.hidden_size = run.vocab_size = run.sequence_size = 64;
    run.num_heads = 2;
    run.ffn_size = 128;
    run.struct_size -= CUT;
    need("a GPU", pst_gpu_find_sized("a100", &a100, sizeof(a100) - CUT));
    init.run = &run;
    init.gpu = END(a100);
    pst_step_config *config = END(init);
    say("pst_step_config", pst_step_get_p2p(config, &p2p_ns));
    config->struct_size -= CUT;
    GET(pst_gpu, pst_gpu_find("a100", out));
    GET(pst_step_work, pst_step_get_work(config, PST_STEP_DENSE, out));
    GET(pst_step_times, pst_step_get_times(config, PST_STEP_DENSE, out));
    GET(pst_step_prediction, pst_step_predict(config, out, NULL));
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0); /* what was said before a crash */
    check_device();
    check_traces();
    check_schedules();
    check_simulations();
    check_plans();
    check_memory();
    check_estimates();
    check_steps();
    return num_bad != 0;
}
