/* Pools that are open, and the tokens of what was stashed in them.
 *
 * A token is a tensor of one int64, the id of a ticket. It may die in any thread at any time: then its
 * ticket goes to the pool's graveyard, and the next stash on a right stream, or drain, gives it back.
 * Threads: any. */
#ifndef PAGESTASH_CSRC_TOKENS_H
#define PAGESTASH_CSRC_TOKENS_H

#include "library.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace pagestash
{

struct Token;

struct Pool {
    pst_pool *handle;
    bool is_cuda, ordered;
    int32_t index;    /* of its device */
    std::mutex &use;  /* the device's: a stream is used by one thread at a time */
    bool open = true; /* under `use` */
    std::atomic<size_t> num_graves{0};
    std::vector<std::shared_ptr<Token>> graves; /* under the registry's lock */
};

/* What a restore must agree with. */
struct Shape {
    int64_t capacity, segments; /* segments 0: one prefix */
    std::vector<uint64_t> row_bytes;
};

enum class Held { live, busy, given };

struct Token {
    pst_ticket ticket;
    std::shared_ptr<Pool> pool;
    Shape shape;
    pst_stream stream;      /* behind everything that was enqueued with the ticket */
    Held held = Held::live; /* this and below under the registry's lock */
    bool is_dead = false;
};

/* A pool in use: not closed, and nothing else enqueued on its device, while this exists. */
class InUse
{
  public:
    explicit InUse(std::shared_ptr<Pool> pool);

    const std::shared_ptr<Pool> pool;

  private:
    std::unique_lock<std::mutex> lock_;
};

/* Throws where no pool of this address is open. */
std::shared_ptr<Pool> pool_of(int64_t address, const char *what);

void pool_opened(int64_t address, bool is_cuda, int32_t index, bool ordered);
/* Refuses new users and waits for those that are there. */
void pool_closing(int64_t address);
/* Forgets it; or it is open again, since it could not be destroyed. */
void pool_closed(int64_t address, bool is_gone);

/* A token of a ticket that was just stashed. */
std::shared_ptr<Token> token_add(std::shared_ptr<Token> token);
/* Takes it for one operation; throws where nobody knows it, it is another pool's, was restored or
 * released already, or is in use by another thread. pool NULL: any. */
std::shared_ptr<Token> token_claim(uint64_t id, const Pool *pool, const char *what);
/* Ends the claim: it is live again. */
void token_keep(Token &token, pst_stream stream);
/* Gives its ticket back, behind what was enqueued on `stream`, and ends the claim. */
void token_give(const std::shared_ptr<Token> &token, pst_stream stream);
/* Its tensor is gone. Enqueues nothing. */
void token_died(uint64_t id);

/* Gives back the tickets of dead tokens that may be given on `stream`, with `all` those of other
 * streams, too; how many have to wait still (for the end of a capture, say). */
size_t drain(Pool &pool, pst_stream stream, bool all);

} // namespace pagestash

#endif
