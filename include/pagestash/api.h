/* Visibility, version, and how structs grow.
 *
 * Structs. One that begins with struct_size can get more fields, at its end. Start from its _INIT
 * macro, which sets the sizes and leaves every other field 0; 0 means the default. The library
 * accepts every size from version 0.1's up to its own, and takes what is missing as 0. A larger one
 * comes from newer headers and is INVALID, whatever it holds: a library must be at least as new as
 * the headers of its callers. The message has both sizes and the library's version.
 *   Elements of arrays that can grow have their size in the config that points to the array
 * (pst_group_config.tensor_bytes), which _INIT sets too. Zero every element first, or start from
 * its _INIT (PST_PLAN_TENSOR_INIT).
 *   Fields named `padding` are 0 in what the caller makes, _INIT sets that too: small fields to come
 * may lie there.
 *   Of an output that can grow the caller says the size, and the library writes as much of it:
 * pst_plan_run is an inline function that calls pst_plan_run_sized with sizeof. dlsym finds only
 * the latter.
 *   Every other struct is frozen: it never changes. structs.h has the sizes of all by name.
 *
 * The build reads the version from the three macros below. */
#ifndef PAGESTASH_API_H
#define PAGESTASH_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of these headers; PST_VERSION is the three as one number, to compare: 100 is 0.1.0. While MAJOR
 * is 0, MINOR stands in the library's SONAME, too: the interface may change with it. */
#define PST_VERSION_MAJOR 0
#define PST_VERSION_MINOR 1
#define PST_VERSION_PATCH 0
#define PST_VERSION (PST_VERSION_MAJOR * 10000 + PST_VERSION_MINOR * 100 + PST_VERSION_PATCH)

#if defined(__GNUC__) || defined(__clang__)
#define PST_API __attribute__((visibility("default")))
#else
#define PST_API
#endif

/* An initialiser of a struct that begins with struct_size; with PST_INIT_1 and
 * PST_INIT_2 it has fields for the sizes of one or two element types. */
#ifdef __cplusplus
extern "C++" { /* also for those who include this within extern "C" */
template <typename T> inline T pst_init()
{
    T config = T();
    config.struct_size = sizeof(T);
    return config;
}
template <typename T> inline T pst_init(uint32_t T::*a, size_t a_bytes)
{
    T config = pst_init<T>();
    config.*a = static_cast<uint32_t>(a_bytes);
    return config;
}
template <typename T>
inline T pst_init(uint32_t T::*a, size_t a_bytes, uint32_t T::*b, size_t b_bytes)
{
    T config = pst_init<T>(a, a_bytes);
    config.*b = static_cast<uint32_t>(b_bytes);
    return config;
}
}
#define PST_INIT(type) pst_init<type>()
#define PST_INIT_1(type, a, of_a) pst_init<type>(&type::a, sizeof(of_a))
#define PST_INIT_2(type, a, of_a, b, of_b) \
    pst_init<type>(&type::a, sizeof(of_a), &type::b, sizeof(of_b))
#define PST_BEGIN_DECLS extern "C" {
#define PST_END_DECLS }
#else
#define PST_INIT(type)              \
    {                               \
        .struct_size = sizeof(type) \
    }
#define PST_INIT_1(type, a, of_a)                      \
    {                                                  \
        .struct_size = sizeof(type), .a = sizeof(of_a) \
    }
#define PST_INIT_2(type, a, of_a, b, of_b)                                \
    {                                                                     \
        .struct_size = sizeof(type), .a = sizeof(of_a), .b = sizeof(of_b) \
    }
#define PST_BEGIN_DECLS
#define PST_END_DECLS
#endif

PST_BEGIN_DECLS

/* Version of the library that is loaded, in the form of PST_VERSION. Threads: any. */
PST_API int pst_version(void);

PST_END_DECLS

#endif
