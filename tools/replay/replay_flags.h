/* The flags of replay_options that say what is replayed: the trace, what of it, and the model. */
#ifndef PAGESTASH_REPLAY_FLAGS_H
#define PAGESTASH_REPLAY_FLAGS_H

#include "tools/common/flags.h"

/* base: the offset of the replay_options in the command's options. */
flag_group replay_model_flags(size_t base);

#endif
