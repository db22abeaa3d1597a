/* Open pools and live tokens of the process: see tokens.h. */
#include "tokens.h"

#include <mutex>
#include <unordered_map>

namespace pagestash
{

Library pst;

namespace
{

struct Registry {
    std::mutex lock;
    std::unordered_map<int32_t, std::mutex> devices; /* -1: the CPU */
    std::unordered_map<int64_t, std::shared_ptr<Pool>> pools;
    std::unordered_map<uint64_t, std::shared_ptr<Token>> tokens; /* whose tensor is alive */
};

/* Never freed: tensors die after static objects do. */
Registry &registry()
{
    static Registry *const only = new Registry;
    return *only;
}

void bury(const std::shared_ptr<Token> &token)
{
    token->pool->graves.push_back(token);
    token->pool->num_graves = token->pool->graves.size();
}

} // namespace

InUse::InUse(std::shared_ptr<Pool> given) : pool(std::move(given)), lock_(pool->use)
{
    if (!pool->open)
        fail("pagestash: the pool is closed");
}

std::shared_ptr<Pool> pool_of(int64_t address, const char *what)
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    const auto found = all.pools.find(address);
    if (found == all.pools.end())
        fail(what, ": pool ", address, " is not open: it was closed, or never was a Pool.handle");
    return found->second;
}

void pool_opened(int64_t address, bool is_cuda, int32_t index, bool ordered)
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    all.pools[address] =
        std::shared_ptr<Pool>(new Pool{reinterpret_cast<pst_pool *>(address), is_cuda, ordered,
                                       index, all.devices[is_cuda ? index : -1]});
}

void pool_closing(int64_t address)
{
    const auto pool = pool_of(address, "pagestash");
    std::lock_guard<std::mutex> alone(pool->use);
    pool->open = false;
}

void pool_closed(int64_t address, bool is_gone)
{
    const auto pool = pool_of(address, "pagestash");
    std::lock_guard<std::mutex> alone(pool->use);
    pool->open = !is_gone;
    if (!is_gone)
        return;
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    all.pools.erase(address);
}

std::shared_ptr<Token> token_add(std::shared_ptr<Token> token)
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    all.tokens[token->ticket.id] = token;
    return token;
}

std::shared_ptr<Token> token_claim(uint64_t id, const Pool *pool, const char *what)
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    const auto found = all.tokens.find(id);
    if (found == all.tokens.end())
        fail(what, ": ", id, " is not the token of a stash that is still there");
    Token &token = *found->second;
    if (pool && token.pool.get() != pool)
        fail(what, ": token ", id, " is of another pool");
    if (token.held == Held::busy)
        fail(what, ": token ", id, " is in use by another thread");
    if (token.held == Held::given)
        fail(what, ": token ", id,
             " was restored or released already; a restore with keep can be "
             "repeated");
    token.held = Held::busy;
    return found->second;
}

void token_keep(Token &token, pst_stream stream)
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    token.stream = stream;
    token.held = Held::live;
    if (!token.is_dead)
        return;
    const auto found = all.tokens.find(token.ticket.id);
    bury(found->second);
    all.tokens.erase(found);
}

void token_give(const std::shared_ptr<Token> &token, pst_stream stream)
{
    const pst_status status = pst.ticket_give(token->ticket, stream);
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    token->stream = stream;
    token->held = Held::given;
    if (status == PST_E_CAPTURE)
        bury(token);
    if (token->is_dead)
        all.tokens.erase(token->ticket.id);
}

void token_died(uint64_t id)
{
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.lock);
    const auto found = all.tokens.find(id);
    if (found == all.tokens.end())
        return;
    Token &token = *found->second;
    token.is_dead = true;
    if (token.held == Held::busy)
        return; /* whoever has it ends it */
    if (token.held == Held::live)
        bury(found->second);
    all.tokens.erase(found);
}

size_t drain(Pool &pool, pst_stream stream, bool everything)
{
    Registry &all = registry();
    std::vector<std::shared_ptr<Token>> some, others;
    {
        std::lock_guard<std::mutex> guard(all.lock);
        /* Of an ordered pool the caller has ordered every stream behind the one before. */
        for (auto &token : pool.graves)
            (everything || pool.ordered || token->stream == stream ? some : others)
                .push_back(token);
        pool.graves.swap(others);
        pool.num_graves = pool.graves.size();
    }
    for (const auto &token : some) {
        const pst_stream behind = pool.ordered ? stream : token->stream;
        if (pst.ticket_give(token->ticket, behind) == PST_E_CAPTURE) {
            std::lock_guard<std::mutex> guard(all.lock);
            bury(token);
        }
    }
    return pool.num_graves;
}

} // namespace pagestash
