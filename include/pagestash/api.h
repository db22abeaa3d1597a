/* Visibility and version. The build reads the version from the three macros below. */
#ifndef PAGESTASH_API_H
#define PAGESTASH_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PST_VERSION_MAJOR 0
#define PST_VERSION_MINOR 1
#define PST_VERSION_PATCH 0
#define PST_VERSION (PST_VERSION_MAJOR * 10000 + PST_VERSION_MINOR * 100 + PST_VERSION_PATCH)

#if defined(__GNUC__) || defined(__clang__)
#define PST_API __attribute__((visibility("default")))
#else
#define PST_API
#endif

#ifdef __cplusplus
#define PST_BEGIN_DECLS extern "C" {
#define PST_END_DECLS }
#else
#define PST_BEGIN_DECLS
#define PST_END_DECLS
#endif

PST_BEGIN_DECLS

/* Version of the library that is loaded, in the form of PST_VERSION. Threads: any. */
PST_API int pst_version(void);

PST_END_DECLS

#endif
