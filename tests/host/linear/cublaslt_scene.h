/* Devices for tests that say that they are cuda, in a child process, since PAGESTASH_CUBLASLT_LIBRARY is
 * read once in one: the machinery of host, of lazy or of simt, with tests/host/linear/fake_cublaslt.c
 * in the place of cuBLASLt. */
#ifndef PAGESTASH_TESTS_CUBLASLT_SCENE_H
#define PAGESTASH_TESTS_CUBLASLT_SCENE_H

#include "tests/harness.h"
#include "tests/host/base/child.h"
#include "tests/host/linear/fake_cublaslt.h"

typedef enum lt_machine { LT_HOST, LT_LAZY, LT_SIMT, LT_MACHINES } lt_machine;

/* The library's functions of this thread; NULL: no fake is there. */
fake_lt *lt_fake(void);
/* A device of this thread, to which the fake enqueues. */
pst_device *lt_open(lt_machine machine);
void lt_enqueue_on(pst_device *device);
void lt_close(pst_device *device);
/* The end of a child: nothing of cuBLASLt lives. */
void lt_end(void);

/* In the test: the child says that it is done, and nothing else. version: a variable, or NULL. */
void lt_check_child(const char *name, const char *version);

#endif
