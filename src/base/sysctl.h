/* SPDX-License-Identifier: BSD-2-Clause
 * The sysctl registry: typed, documented and scoped knobs with FreeBSD's names (rows in knobs.def).
 */
#ifndef WEIR_BASE_SYSCTL_H
#define WEIR_BASE_SYSCTL_H

#include "base.h"

enum knob_scope { KNOB_SCOPE_STACK, KNOB_SCOPE_PROCESS };
enum knob_type { KNOB_TYPE_INT, KNOB_TYPE_BOOL, KNOB_TYPE_ENUM, KNOB_TYPE_PROC };

enum knob_id {
#define KNOB_INT(scope, id, name, dflt, min, max, doc) KNOB_##id,
#define KNOB_BOOL(scope, id, name, dflt, doc) KNOB_##id,
#define KNOB_ENUM(scope, id, name, dflt, words, doc) KNOB_##id,
#define KNOB_PROC(scope, id, name, doc) KNOB_##id,
#include "knobs.def"
#undef KNOB_INT
#undef KNOB_BOOL
#undef KNOB_ENUM
#undef KNOB_PROC
    KNOB_COUNT
};

/* All knobs of a scope; the fields of the other scope are unused. One writer (the owner, or the
 * process lock); read with KNOB() from any thread. */
struct knobs {
#define KNOB_INT(scope, id, name, dflt, min, max, doc) _Atomic int64_t id;
#define KNOB_BOOL(scope, id, name, dflt, doc) _Atomic int64_t id;
#define KNOB_ENUM(scope, id, name, dflt, words, doc) _Atomic int64_t id;
#define KNOB_PROC(scope, id, name, doc)
#include "knobs.def"
#undef KNOB_INT
#undef KNOB_BOOL
#undef KNOB_ENUM
#undef KNOB_PROC
};

extern struct knobs process_knobs;

/* KNOB(stack, tcp_msl): the value now. KNOB_P(kern_idle_spin_us): of the process. */
#define KNOB(stack, id) LOAD_RELAXED(&(stack)->knobs.id)
#define KNOB_P(id) LOAD_RELAXED(&process_knobs.id)

struct knob_info {
    const char *name, *doc;
    enum knob_scope scope;
    enum knob_type type;
    int64_t dflt, min, max;
    const char *words; /* ENUM: "a|b|c" */
};
extern const struct knob_info knob_table[KNOB_COUNT];

/* Handler of a KNOB_PROC knob, called by the owner. write == NULL: put the value as text into out
 * (always terminated). Otherwise take the text; return 0, -EINVAL, -EPERM (read-only). */
typedef int sysctl_handler(struct weir_stack *s, const char *write, char *out, size_t out_size);

struct sysctl_state {
    sysctl_handler *handler[KNOB_COUNT];
    void (*changed[KNOB_COUNT])(struct weir_stack *s); /* called after a successful write */
};

void sysctl_init(struct knobs *k); /* all defaults, both scopes */
void sysctl_set_handler(struct weir_stack *s, enum knob_id id, sysctl_handler *fn);
void sysctl_set_changed(struct weir_stack *s, enum knob_id id, void (*fn)(struct weir_stack *));

/* -1 when the name is unknown. Any exact name; no prefix match. */
int sysctl_find(const char *name);
/* Read or write by name, as text. By the owner of s. An ENUM takes its word or, where all words are
 * numbers, that number. Returns 0; -ENOENT unknown name, -EINVAL not a value of this type, -ERANGE
 * out of [min, max], -EPERM read-only, -ENOSPC out too small. */
int sysctl_get(struct weir_stack *s, const char *name, char *out, size_t out_size) NODISCARD;
int sysctl_set(struct weir_stack *s, const char *name, const char *value) NODISCARD;
/* The same errors without a stack, and nothing is set. What only a stack's handler knows passes. */
int sysctl_check(const char *name, const char *value) NODISCARD;

#endif
