/* The functions of libpagestash that the ops call, bound to the library that Python has loaded.
 *
 * They are looked up in that very library and not linked: handles of pools and tickets come from
 * there, and a second copy, found by another path or soname, would not know them. */
#ifndef PAGESTASH_CSRC_LIBRARY_H
#define PAGESTASH_CSRC_LIBRARY_H

#include <pagestash/pagestash.h>

#include <sstream>
#include <stdexcept>
#include <string>

namespace pagestash
{

#define PAGESTASH_USED_LIST(X) \
    X(status_name)             \
    X(last_message)            \
    X(group_create)            \
    X(group_destroy)           \
    X(ticket_take)             \
    X(ticket_give)             \
    X(ticket_stash)            \
    X(ticket_restore)

struct Library {
#define PAGESTASH_USED_MEMBER(name) decltype(&::pst_##name) name;
    PAGESTASH_USED_LIST(PAGESTASH_USED_MEMBER)
#undef PAGESTASH_USED_MEMBER
};

extern Library pst;

template <typename... Parts> [[noreturn]] void fail(const Parts &...parts)
{
    std::ostringstream text;
    ((text << parts), ...);
    throw std::runtime_error(text.str());
}

inline void check(pst_status status, const char *what)
{
    if (status != PST_OK)
        fail(what, ": ", pst.status_name(status), ": ", pst.last_message());
}

} // namespace pagestash

#endif
