/* The public structs by name; packaging.layout compares all of them with the headers. */
#include "tests/harness.h"

#include <pagestash/pagestash.h>

#include <string.h>

#define REFUSES(call, text)                \
    do {                                   \
        CHECK_STATUS(call, PST_E_INVALID); \
        CHECK_SAID(text);                  \
    } while (0)

PST_TEST(Structs, EachIsFoundByItsName)
{
    pst_struct_info by_index, by_name;
    CHECK(pst_struct_count() > 0);
    for (int i = 0; i < pst_struct_count(); i++) {
        CHECK_OK(pst_struct_get(i, &by_index));
        CHECK_OK(pst_struct_find(by_index.name, &by_name));
        CHECK_MSG(by_name.name == by_index.name, "%s stands there twice", by_index.name);
        CHECK_EQ(by_name.version, pst_version());
        CHECK(by_name.first_bytes <= by_name.bytes);
        CHECK(by_name.can_grow || by_name.first_bytes == by_name.bytes);
    }
}

PST_TEST(Structs, OneThatCanGrowAndOneThatIsFrozen)
{
    const pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_struct_info info;
    uint64_t bytes = 0;
    CHECK_OK(pst_struct_find("pst_pool_config", &info));
    CHECK(info.can_grow);
    CHECK_EQ(info.bytes, config.struct_size);
    /* what is said of it is what calls go by: below first_bytes they refuse, at it they read on */
    pst_pool_config least = config;
    least.struct_size = info.first_bytes - 1;
    REFUSES(pst_pool_bytes(&least, &bytes), "struct_size");
    least.struct_size = info.first_bytes;
    REFUSES(pst_pool_bytes(&least, &bytes), "num_pages");
    CHECK_OK(pst_struct_find("pst_pool_status", &info));
    CHECK(!info.can_grow);
    CHECK_EQ(info.bytes, 256);
}

PST_TEST(Structs, Refusals)
{
    pst_struct_info info;
    memset(&info, 0x5a, sizeof(info));
    const pst_struct_info untouched = info;
    REFUSES(pst_struct_get(-1, &info), "index -1: allowed are 0 to");
    REFUSES(pst_struct_get(pst_struct_count(), &info), "index");
    REFUSES(pst_struct_get(0, NULL), "info_out is NULL");
    REFUSES(pst_struct_find(NULL, &info), "name or info_out is NULL");
    REFUSES(pst_struct_find("pst_pool_config", NULL), "name or info_out is NULL");
    REFUSES(pst_struct_find("pst_pool", &info), "no public struct is called 'pst_pool' in");
    CHECK(memcmp(&info, &untouched, sizeof(info)) == 0);
}
